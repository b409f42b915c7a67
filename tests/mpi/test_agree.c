/* Ranks leave together with the lowest rank's words, printed once; rows come together in rank order. */
#include "driver/agree.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <mpi.h>

#include "base/err.h"
#include "base/units.h"
#include "tests/test.h"

/* Under AddressSanitizer too, more than there is must be refused by malloc, as everywhere else. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

static const MPI_Comm world = MPI_COMM_WORLD;
static int rank, size;

/* Standard error of this process into a pipe, and back; what was written goes to text. */
static int saved_stderr, pipe_ends[2];

static void capture_begin(void)
{
    if (pipe(pipe_ends) != 0)
        die(FAIL_INTERNAL, "pipe");
    saved_stderr = dup(STDERR_FILENO);
    dup2(pipe_ends[1], STDERR_FILENO);
    close(pipe_ends[1]);
}

static void capture_end(char *text, size_t bytes)
{
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    ssize_t n = read(pipe_ends[0], text, bytes - 1);
    text[n > 0 ? n : 0] = '\0';
    close(pipe_ends[0]);
}

/* Each rank fails (code != 0) with its words; all get `code` and `words`, `speaker` prints `line`. */
static void check_agree(int mine, const char *my_words, int code, const char *words, int speaker,
                        const char *line)
{
    char text[2048], wanted[2048];
    fail_clear();
    if (mine != 0 && my_words[0] != '\0')
        fail(mine, "%s", my_words);
    capture_begin();
    int rc = agree(mine, &world);
    capture_end(text, sizeof text);
    CHECK_EQ(rc, code);
    CHECK(strcmp(fail_message(), words) == 0);
    snprintf(wanted, sizeof wanted, "scalestudy: %s%s\n", words, line);
    CHECK(strcmp(text, rank == speaker ? wanted : "") == 0);
    fail_clear();
}

static void test_agree(void)
{
    char where[MPI_MAX_PROCESSOR_NAME + 32], host[MPI_MAX_PROCESSOR_NAME], words[64];
    int length;
    MPI_Get_processor_name(host, &length);

    capture_begin();
    CHECK_EQ(agree(0, &world), 0);
    capture_end(words, sizeof words);
    CHECK(words[0] == '\0' && fail_message()[0] == '\0');

    check_agree(FAIL_USAGE, "all the same: 100%s", FAIL_USAGE, "all the same: 100%s", 0, "");
    check_agree(FAIL_FILE, "", FAIL_FILE, fail_words(FAIL_FILE), 0, ""); /* no words of its own */

    snprintf(where, sizeof where, " (host %s, rank 0)", host); /* equal codes, other words */
    snprintf(words, sizeof words, "words of rank %d", rank);
    check_agree(FAIL_FILE, words, FAIL_FILE, "words of rank 0", 0, size > 1 ? where : "");
    check_agree(rank == 0 ? FAIL_FILE : FAIL_USAGE, "same words", FAIL_FILE, "same words", 0,
                size > 1 ? where : "");
    if (size == 1)
        return;
    snprintf(where, sizeof where, " (host %s, rank %d)", host, size - 1); /* only the last */
    check_agree(rank == size - 1 ? FAIL_COMM : 0, "broken", FAIL_COMM, "broken", size - 1, where);
    snprintf(where, sizeof where, " (host %s, rank 1)", host); /* lowest rank, not lowest code */
    snprintf(words, sizeof words, "rank %d", rank);
    check_agree(rank == 0 ? 0 : 9 - (rank > 1), words, 9, "rank 1", 1, where);
}

/* A rank that did not fail forgets an older message of its own: the verdict's is what all have. */
static void test_quiet(void)
{
    char text[256], longest[2000];
    fail_clear();
    fail(FAIL_WRONG, "an older message of rank %d", rank);
    capture_begin();
    int rc = agree_quietly(rank == 0 ? FAIL_WRONG : 0, &world);
    capture_end(text, sizeof text);
    CHECK_EQ(rc, FAIL_WRONG);
    CHECK(strcmp(fail_message(), "an older message of rank 0") == 0);
    CHECK(text[0] == '\0');

    fail_clear();
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    fail(FAIL_WRONG, "%s", longest);
    CHECK_EQ(agree_quietly(FAIL_WRONG, &world), FAIL_WRONG);
    CHECK_EQ(strlen(fail_message()), 1023);
    fail_clear();
}

/* Who failed is in the sentence of all, where not all failed alike. */
static void test_named(void)
{
    char text[256], expected[64];
    fail_clear();
    if (rank == size - 1)
        fail(FAIL_FILE, "a file");
    capture_begin();
    CHECK_EQ(agree_named(rank == size - 1 ? FAIL_FILE : 0, &world), FAIL_FILE);
    capture_end(text, sizeof text);
    snprintf(expected, sizeof expected, ", rank %d)", size - 1);
    CHECK(strncmp(fail_message(), "a file", 6) == 0);
    CHECK_EQ(strstr(fail_message(), " (host ") != NULL, size > 1);
    CHECK_EQ(strstr(fail_message(), expected) != NULL, size > 1);
    CHECK(text[0] == '\0');

    fail_clear();
    fail(FAIL_FILE, "the same");
    CHECK_EQ(agree_named(FAIL_FILE, &world), FAIL_FILE);
    CHECK(strcmp(fail_message(), "the same") == 0);
    fail_clear();
    CHECK_EQ(agree_named(0, &world), 0);
}

/* Agreement holds among the ranks of a smaller communicator, and says nothing about others. */
static void test_halves(void)
{
    MPI_Comm half;
    fail_clear();
    MPI_Comm_split(world, rank % 2, rank, &half);
    if (rank % 2 == 1)
        fail(FAIL_FILE, "odd");
    CHECK_EQ(agree_quietly(rank % 2 == 1 ? FAIL_FILE : 0, &half), rank % 2 == 1 ? FAIL_FILE : 0);
    MPI_Comm_free(&half);
    fail_clear();
}

/* Waiting costs no processor: the others wait 0.3 s for rank 0 in a barrier. */
static void test_cheap_wait(void)
{
    CHECK_EQ(agree_barrier(&world), 0);
    struct timespec begin, end;
    int64_t start_ns = units_now_ns();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
    if (rank == 0)
        units_sleep_ns(300000000);
    CHECK_EQ(agree_barrier(&world), 0);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    double used_s =
        (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
    CHECK(units_now_ns() - start_ns >= 290000000); /* nobody leaves a barrier early */
    CHECK(used_s < 0.06); /* spinning uses 0.3, or its share of the cores */
    if (rank == size - 1)
        printf("waiting 0.3 s used %.4f s of processor\n", used_s);
}

static unsigned char byte_of(int of_rank, int64_t i)
{
    return (unsigned char)((uint64_t)i * 0x9e3779b97f4a7c15u >> 56 ^ (uint64_t)(of_rank * 37 + 1));
}

static unsigned char *make_rows(int64_t bytes)
{
    unsigned char *rows = must_alloc((size_t)bytes + 1, 1);
    for (int64_t i = 0; i < bytes; i++)
        rows[i] = byte_of(rank, i);
    return rows;
}

static void check_gathered(unsigned char *all, int64_t total, const int64_t *counts,
                           const int64_t *wanted)
{
    int64_t sum = 0, wrong = 0;
    if (rank != 0) {
        CHECK(all == NULL && total == 0);
        return;
    }
    for (int r = 0; r < size; r++) {
        CHECK_EQ(counts[r], wanted[r]);
        for (int64_t i = 0; i < wanted[r]; i++)
            wrong += all[sum + i] != byte_of(r, i);
        sum += wanted[r];
    }
    CHECK_EQ(total, sum);
    CHECK_EQ(wrong, 0);
    free(all);
}

/* Hosts of two kinds of place (side by side, dealt out in turn), pieces from 1 byte to all at once. */
static void test_gather_pieces(void)
{
    static const int64_t pieces[] = {1, 3, 7, 64, 1000, 1 << 20};
    int64_t wanted[64], counts[64] = {0}, total;
    void *all;
    for (int hosts = 1; hosts <= size; hosts++)
        for (size_t i = 0; i < 2 * sizeof pieces / sizeof *pieces; i++) {
            int dealt = rank % hosts, beside = rank / hosts * hosts;
            for (int r = 0; r < size; r++)
                wanted[r] = (r + (int)i) % 3 == 0 ? 0 : 5 * r + 11 * (int)i;
            unsigned char *rows = make_rows(wanted[rank]);
            CHECK_EQ(agree_gather_by(wanted[rank] > 0 ? rows : NULL, wanted[rank], &all, &total,
                                     counts, &world, i % 2 == 0 ? dealt : beside, pieces[i / 2]),
                     0);
            check_gathered(all, total, counts, wanted);
            free(rows);
        }
}

static void test_gather(void)
{
    int64_t wanted[64], counts[64] = {0}, total;
    void *all;
    for (int r = 0; r < size; r++)
        wanted[r] = 3000000 + 1000 * r;
    unsigned char *rows = make_rows(wanted[rank]);
    CHECK_EQ(agree_barrier(&world), 0);
    int64_t start_ns = units_now_ns();
    CHECK_EQ(agree_gather(rows, wanted[rank], &all, &total, rank == 0 ? counts : NULL, &world), 0);
    if (rank == 0)
        printf("gather of %.1f MB: %.1f ms\n", 1e-6 * (double)total,
               1e-6 * (double)(units_now_ns() - start_ns));
    check_gathered(all, total, counts, wanted);
    CHECK_EQ(agree_gather(NULL, 0, &all, &total, counts, &world), 0);
    CHECK_EQ(total, 0);
    CHECK((all != NULL) == (rank == 0));
    free(all);
    free(rows);

    /* More than rank 0 can have: everybody hears of it. */
    fail_clear();
    CHECK_EQ(agree_gather(NULL, rank == 0 ? INT64_MAX / 2 : 0, &all, &total, counts, &world),
             FAIL_INTERNAL);
    CHECK_HAS(fail_message(), "no memory for 4611686018427387903 bytes");
    fail_clear();
}

/* Beyond 2^31 bytes from one rank: about 4.5 GB of memory, so only when asked for. */
static void test_gather_deep(void)
{
    int64_t wanted[64] = {0}, counts[64] = {0}, total;
    void *all;
    if (getenv("SCALESTUDY_DEEP") == NULL || size != 2)
        return;
    wanted[0] = 1000;
    wanted[1] = ((int64_t)1 << 31) + 123457;
    unsigned char *rows = make_rows(wanted[rank]);
    CHECK_EQ(agree_barrier(&world), 0);
    int64_t start_ns = units_now_ns();
    CHECK_EQ(agree_gather(rows, wanted[rank], &all, &total, counts, &world), 0);
    if (rank == 0)
        printf("gather of %.3f GB: %.2f s\n", 1e-9 * (double)total,
               1e-9 * (double)(units_now_ns() - start_ns));
    check_gathered(all, total, counts, wanted);
    free(rows);
}

static void test_broadcast(void)
{
    static const int64_t sizes[] = {0, 1, 1000, 5000000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int root = size - 1;
        int64_t wrong = 0;
        unsigned char *data = must_alloc((size_t)sizes[i] + 1, 1);
        for (int64_t j = 0; j < sizes[i] && rank == root; j++)
            data[j] = byte_of(root, j);
        CHECK_EQ(agree_broadcast(data, sizes[i], root, &world), 0);
        for (int64_t j = 0; j < sizes[i]; j++)
            wrong += data[j] != byte_of(root, j);
        CHECK_EQ(wrong, 0);
        free(data);
    }
}

static void test_host(void)
{
    int first = -1;
    CHECK_EQ(agree_host(&first, &world), 0);
    CHECK_EQ(first, 0); /* this test runs on one host */
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &size);
    test_agree();
    test_quiet();
    test_named();
    test_halves();
    test_cheap_wait();
    test_host();
    test_broadcast();
    test_gather_pieces();
    test_gather();
    test_gather_deep();
    MPI_Finalize();
    return test_end();
}
