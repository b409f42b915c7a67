/* Words of --comm-setup, and what is no such thing. */
#include <string.h>

#include "base/err.h"
#include "collectives/comm.h"
#include "tests/test.h"

static void good(void)
{
    static const struct {
        const char *text;
        struct comm_setup setup;
    } cases[] = {
        {"nothing", {0}},
        {"buffers", {.enrolment = ENROL_BUFFERS}},
        {"windows", {.enrolment = ENROL_WINDOWS}},
        {"windows,none", {.enrolment = ENROL_WINDOWS, .blocks = COMM_NO_BLOCKS}},
        {"nothing,few", {.blocks = COMM_FEW_BLOCKS}},
        {"nothing,1", {.max_ctas = 1}},
        {"buffers,64", {.enrolment = ENROL_BUFFERS, .max_ctas = 64}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct comm_setup setup;
        char text[COMM_SETUP_TEXT];
        CHECK_EQ(comm_setup_parse(&setup, cases[i].text), 0);
        CHECK_EQ((int)setup.enrolment, (int)cases[i].setup.enrolment);
        CHECK_EQ((int)setup.blocks, (int)cases[i].setup.blocks);
        CHECK_EQ(setup.max_ctas, cases[i].setup.max_ctas);
        comm_setup_text(&setup, text);
        CHECK_EQ(strcmp(text, cases[i].text), 0);
    }
}

static void bad(void)
{
    static const char *const texts[] = {
        "",           "heap",       "windows,",    "windows,0",
        "windows,65", "windows,-1", "windows, 8",  "windows,8x",
        "windows,8,", "window",     "windows,own", ",8",
        "8",          "few",        "windows,08x", "windows,99999999999999999999"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct comm_setup setup;
        fail_clear();
        CHECK_EQ(comm_setup_parse(&setup, texts[i]), FAIL_USAGE);
        CHECK_HAS(fail_message(), "--comm-setup: found \"");
    }
    fail_clear();
    struct comm_setup setup;
    CHECK_EQ(comm_setup_for(&setup, &comm_mpi, "nothing"), 0);
    CHECK_EQ(comm_setup_for(&setup, &comm_mpi, "windows"), FAIL_USAGE);
    CHECK_HAS(fail_message(), "of communicator \"mpi\" nothing can be set up");
}

int main(void)
{
    good();
    bad();
    return test_end();
}
