#include "analysis/record_schema.h"

#include <stdio.h>

#include "base/err.h"

#define KIND_i32 RECORD_I32
#define KIND_i64 RECORD_I64
#define KIND_f64 RECORD_F64
#define KIND_text16 RECORD_TEXT
#define KIND_text32 RECORD_TEXT
#define KIND_text64 RECORD_TEXT
#define KIND_text128 RECORD_TEXT
#define KIND_text512 RECORD_TEXT

#define COLUMN(type, name, unit, meaning)                                                          \
    {#name, unit, meaning, KIND_##type, offsetof(table_row, name), sizeof(type)},

/* A function per table, because the row type has to have one name inside the column list. */
#define TABLE(name, row, columns_of)                                                               \
    static struct record_table table_##name(void)                                                  \
    {                                                                                              \
        typedef row table_row;                                                                     \
        static const struct record_column columns[] = {columns_of(COLUMN)};                        \
        return (struct record_table){#name, sizeof(table_row),                                     \
                                     (int)(sizeof columns / sizeof *columns), columns};            \
    }
RECORD_TABLES_ALL(TABLE)

_Static_assert(sizeof(struct step_row) <= 160, "a step row is at most 160 bytes");

struct record_table record_table(enum record_table_index which)
{
    switch (which) {
#define CASE(name, row, columns)                                                                   \
    case TABLE_##name:                                                                             \
        return table_##name();
        RECORD_TABLES_ALL(CASE)
#undef CASE
    case TABLE_COUNT:
        break;
    }
    BUG("no table %d", (int)which);
}

static const char *type_name(const struct record_column *column, char text[16])
{
    switch (column->kind) {
    case RECORD_I32:
        return "i32";
    case RECORD_I64:
        return "i64";
    case RECORD_F64:
        return "f64";
    case RECORD_TEXT:
        break;
    }
    snprintf(text, 16, "text%zu", column->size);
    return text;
}

static void print_table(FILE *to, enum record_table_index which)
{
    struct record_table table = record_table(which);
    char text[16];
    fprintf(to, "\n%s%s  (%zu bytes a row)\n", which < TABLE_point ? "/machine/" : "/points/NNN/",
            table.name, table.row_size);
    for (int i = 0; i < table.n_columns; i++) {
        const struct record_column *column = &table.columns[i];
        fprintf(to, "  %-20s  %-7s  %-7s  %s\n", column->name, type_name(column, text),
                column->unit[0] ? column->unit : "-", column->meaning);
    }
}

void record_schema(void *to_FILE)
{
    fprintf(to_FILE,
            "scalestudy study, schema %d, formula version %d\n"
            "attributes: / (format, schema, formula_version, study_digest, t0_unix_ns), "
            "/study, /provenance, /launch.N\n"
            "tables: column, type, unit, meaning; the same beside each table as <table>.columns\n",
            RECORD_SCHEMA, RECORD_FORMULAS);
    for (int which = 0; which < TABLE_COUNT; which++)
        print_table(to_FILE, (enum record_table_index)which);
}
