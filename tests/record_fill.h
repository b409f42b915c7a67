/*
 * record_fill.h: points whose every column is random and a pure function of (seed, point), so that
 * a row that was written can be recognised when it is read, also by another process. Columns that
 * are indices stay within what they index.
 */
#ifndef TESTS_RECORD_FILL_H
#define TESTS_RECORD_FILL_H

#include <string.h>

#include "analysis/record_schema.h"
#include "base/err.h"
#include "base/rng.h"

static inline int64_t fill_most(enum record_table_index which, const char *column, int ranks,
                                int64_t steps)
{
    if (strcmp(column, "rank") == 0)
        return which == TABLE_ranks ? 1 << 20 : ranks;
    if (strcmp(column, "step") == 0)
        return steps > 0 ? steps : 1;
    if (strcmp(column, "variant") == 0)
        return VARIANTS;
    if (strcmp(column, "block") == 0 || strcmp(column, "call") == 0 || strcmp(column, "op") == 0)
        return 1 << 20;
    if (strcmp(column, "part") == 0)
        return 1;
    return strcmp(column, "launch") == 0 || strcmp(column, "host") == 0 ? 1 : 0;
}

static inline void fill_text(char *text, size_t size, uint64_t key, uint64_t row)
{
    uint32_t length = rng_below(key, 2 * row, (uint32_t)size);
    memset(text, 0, size);
    for (uint32_t i = 0; i < length; i++)
        text[i] = (char)(' ' + rng_below(key, (row << 10) + i, 95));
}

static inline void fill_rows(enum record_table_index which, void *rows, int64_t n, int ranks,
                             int64_t steps, uint64_t key)
{
    struct record_table table = record_table(which);
    for (int c = 0; c < table.n_columns; c++) {
        const struct record_column *column = &table.columns[c];
        uint64_t stream = rng_key(key, column->name);
        int64_t most = fill_most(which, column->name, ranks, steps);
        for (int64_t i = 0; i < n; i++) {
            char *at = (char *)rows + (size_t)i * table.row_size + column->offset;
            uint64_t bits = rng_bits(stream, (uint64_t)i);
            int32_t index = (int32_t)(most > 0 ? bits % (uint64_t)most : bits & 0xffffffff);
            if (column->kind == RECORD_TEXT)
                fill_text(at, column->size, stream, (uint64_t)i);
            else if (column->kind == RECORD_I32)
                memcpy(at, &index, sizeof index);
            else
                memcpy(at, &bits, sizeof bits);
        }
    }
}

/* A point of 4 ranks with n rows in every table (steps: 4 n). */
static inline void fill_point(struct record_point *out, int point, int64_t n, uint64_t seed)
{
    *out = (struct record_point){0};
    for (int which = TABLE_point + 1; which < TABLE_COUNT; which++) {
        struct record_table table = record_table((enum record_table_index)which);
        int64_t count = which == TABLE_steps ? 4 * n : n;
        uint64_t key = rng_key(seed + (uint64_t)point, table.name);
        void *rows = must_alloc((size_t)count + 1, table.row_size);
        fill_rows((enum record_table_index)which, rows, count, 4, 4 * n, key);
        record_point_adopt(out, (enum record_table_index)which, rows, count);
    }
    fill_rows(TABLE_point, &out->point, 1, 4, 0, rng_key(seed + (uint64_t)point, "point"));
    out->point.point = point;
    out->point.ranks = 4;
    out->point.launch = 0;
}

static inline bool same_rows(enum record_table_index which, const void *a, const void *b, int64_t n)
{
    struct record_table table = record_table(which);
    for (int64_t i = 0; i < n; i++)
        for (int c = 0; c < table.n_columns; c++) {
            const struct record_column *column = &table.columns[c];
            size_t at = (size_t)i * table.row_size + column->offset;
            if (memcmp((const char *)a + at, (const char *)b + at, column->size) != 0)
                return false;
        }
    return true;
}

/* Field by field, bit by bit; the launch of the point excepted. */
static inline bool same_point(const struct record_point *a, const struct record_point *b)
{
    struct point_row row = a->point;
    row.launch = b->point.launch;
    if (!same_rows(TABLE_point, &row, &b->point, 1))
        return false;
    for (int which = TABLE_point + 1; which < TABLE_COUNT; which++) {
        int64_t n, m;
        const void *left = record_point_rows(a, (enum record_table_index)which, &n);
        const void *right = record_point_rows(b, (enum record_table_index)which, &m);
        if (n != m || !same_rows((enum record_table_index)which, left, right, n))
            return false;
    }
    return true;
}

/* A head with two hosts, `ranks` ranks and a few attributes. */
static inline void fill_head(struct record_head *head, int ranks, uint64_t seed)
{
    *head = (struct record_head){
        .schema = RECORD_SCHEMA, .t0_unix_ns = (int64_t)(seed + 1), .n_hosts = 2, .n_ranks = ranks};
    strcpy(head->study_digest, "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef");
    head->hosts = must_alloc(2, sizeof *head->hosts);
    head->ranks = must_alloc((size_t)ranks, sizeof *head->ranks);
    fill_rows(TABLE_hosts, head->hosts, 2, ranks, 0, rng_key(seed, "hosts"));
    fill_rows(TABLE_ranks, head->ranks, ranks, ranks, 0, rng_key(seed, "ranks"));
    record_head_set(head, "study", "model", "tiny");
    record_head_set(head, "study", "layout", "2x2");
    record_head_set(head, "study", "empty", "");
    record_head_set(head, "provenance", "mpi", "Open MPI 4.1.4");
    record_head_set(head, "launch.0", "argv", "scalestudy --layout 2x2");
}

#endif
