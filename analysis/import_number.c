#include "analysis/import_number.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/units.h"

enum { DIGITS = 64 };

static bool is_absent(const char *text)
{
    static const char *const words[] = {"", "-", "n/a", "na", "none", "null"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasecmp(text, words[i]) == 0)
            return true;
    return false;
}

/* Half a unit of the last digit of "12.50e3". */
static double half_unit(const char *text)
{
    const char *point = strchr(text, '.'), *exponent = strpbrk(text, "eE");
    long decimals = 0;
    if (point != NULL)
        decimals = (exponent != NULL ? exponent : text + strlen(text)) - point - 1;
    return 0.5 * pow(10.0, (exponent != NULL ? atoi(exponent + 1) : 0) - (double)decimals);
}

static bool is_number_sign(char c)
{
    return isdigit((unsigned char)c) || c == '.' || c == '+' || c == '-' || c == 'e' || c == 'E';
}

/* "847" of "5,847": three digits and no fourth. */
static bool is_group(const char *comma)
{
    return isdigit((unsigned char)comma[1]) && isdigit((unsigned char)comma[2]) &&
           isdigit((unsigned char)comma[3]) && !isdigit((unsigned char)comma[4]);
}

const char *import_number_prefix(const char *text, int thousands, struct import_number *out,
                                 const char **end)
{
    char digits[DIGITS], *last;
    size_t n = 0;
    *out = (struct import_number){NAN, NAN};
    while (*text == ' ' || *text == '\t')
        text++;
    *end = text;
    if (strncasecmp(text, "nan", 3) == 0 || strncasecmp(text, "inf", 3) == 0 ||
        strncasecmp(text, "-nan", 4) == 0 || strncasecmp(text, "-inf", 4) == 0)
        return "is not a finite number";
    for (; n < DIGITS - 1; text++) {
        if (*text == ',' && n > 0 && thousands && is_group(text))
            continue;
        if (*text == ',' && n > 0 && isdigit((unsigned char)text[1]))
            return "has a comma: a decimal comma or a thousands separator, write 1.5 or 1500";
        if (!is_number_sign(*text) || ((*text == '+' || *text == '-') && n > 0 &&
                                       tolower((unsigned char)digits[n - 1]) != 'e'))
            break;
        digits[n++] = *text;
    }
    digits[n] = '\0';
    double value = strtod(digits, &last);
    if (n == 0 || last != digits + n)
        return "is not a number";
    if (!isfinite(value))
        return "is not a finite number";
    *out = (struct import_number){value, half_unit(digits)};
    *end = text;
    return NULL;
}

const char *import_number(const char *text, struct import_number *out)
{
    const char *end;
    *out = (struct import_number){NAN, NAN};
    if (is_absent(text))
        return NULL;
    const char *wrong = import_number_prefix(text, 0, out, &end);
    if (wrong == NULL && *end != '\0')
        wrong = "is not one plain number: units belong into the name of the column";
    return wrong;
}

const char *import_bytes(const char *text, struct import_number *out)
{
    int64_t bytes;
    size_t n = strlen(text);
    *out = (struct import_number){NAN, NAN};
    if (is_absent(text))
        return NULL;
    if (n >= 2 && strchr("bB", text[n - 1]) != NULL && isalpha((unsigned char)text[n - 2]) &&
        strchr("iI", text[n - 2]) == NULL)
        return "may be decimal or binary: write 1GiB, or the number of bytes";
    if (strchr(text, ',') != NULL)
        return "has a comma: write the number of bytes without separators";
    if (units_parse_bytes(text, &bytes) != 0)
        return "is not a number of bytes";
    *out = (struct import_number){(double)bytes, 0.0};
    return NULL;
}
