/* Expected goodput is what a simulated job gets, saves synchronous or not; the optima are where no other
 * interval gives more; published and derived figures come out. */
#include <math.h>

#include "analysis/goodput_law.h"
#include "analysis/goodput_model.h"
#include "base/rng.h"
#include "tests/test.h"

/* ---- figures ---- */

static void optima_have_their_golden_values(void)
{
    static const double golden[][5] = {/* d, M: Young, Daly, exact */
                                       {60, 11160, 1157.2, 1117.6, 1117.6},
                                       {600, 3600, 2078.5, 1697.7, 1699.2},
                                       {3600, 3600, 5091.2, 2974.0, 3029.1},
                                       {6.3, 11160, 375.0, 370.8, 370.8},
                                       {148.8, 11160, 1822.4, 1724.6, 1724.6}};
    for (int i = 0; i < 5; i++) {
        const double *x = golden[i];
        CHECK_NEAR(goodput_tau_young(x[1], x[0]), x[2], 0.05);
        CHECK_NEAR(goodput_tau_daly(x[1], x[0]), x[3], 0.05);
        CHECK_NEAR(goodput_tau_exact(x[1], x[0]), x[4], 0.05);
    }
    CHECK_NEAR(goodput_tau_daly(3600, 7200), 3600, 0);
    CHECK(goodput_young_holds(3600, 1799) && !goodput_young_holds(3600, 1800));
    CHECK_NEAR(goodput_tau_exact(100, 1e6), 100, 1e-9); /* far beyond M: once per failure */
    CHECK_NEAR(goodput_tau_exact(100, 0), 0, 0);
}

static void the_model_has_its_golden_values(void)
{
    static const struct {
        double m, tau;
        struct goodput_costs costs;
        double exact, first;
    } golden[] = {{3600, 600, {20, 200, 0, 300}, 0.77610, 0.750},
                  {3600, 200, {5, 190, 300, 0}, 0.82860, 0.8125},
                  {11160, 1000, {6.3, 148.8, 100, 200}, 0.91269, 0.9092}};
    for (int i = 0; i < 3; i++) {
        CHECK_NEAR(goodput_renewal(golden[i].m, golden[i].tau, &golden[i].costs), golden[i].exact,
                   6e-6);
        CHECK_NEAR(goodput_first_order(golden[i].m, golden[i].tau, &golden[i].costs),
                   golden[i].first, 6e-5);
    }
    /* A save cannot start before the last one is published. */
    CHECK(isnan(goodput_renewal(3600, 179, &golden[0].costs)));
    CHECK(isfinite(goodput_renewal(3600, 180, &golden[0].costs)));
    CHECK(isnan(goodput_renewal(3600, 0, &golden[0].costs)));
}

static void published_figures_come_out(void)
{
    struct goodput_law law;
    struct goodput_costs free_saves = {0, 0, 0, 300}, slower = {0, 0, 0, 120};
    /* RSC-1: 6.50 failures in 1,000 node-days; 16,384 GPUs are 2,048 nodes of 8. */
    CHECK_EQ(goodput_law_parse(&law, "", "65", "10000d/node"), 0);
    double m = goodput_law_job(&law, 2048, 16384).value;
    CHECK_NEAR(m / 3600, 1.80, 0.005);
    CHECK_NEAR(goodput_ettr(m, 3600, &free_saves), 0.676, 5e-4);
    CHECK_NEAR(goodput_ettr(m, 300, &free_saves), 0.931, 5e-4);
    CHECK_NEAR(goodput_renewal(m, 300, &free_saves), 0.933, 5e-4);
    CHECK_NEAR(goodput_law_job(&law, 128, 1024).value / 3600, 28.8, 0.05);
    CHECK_EQ(goodput_law_parse(&law, "", "234", "100000d/node"), 0);
    CHECK_NEAR(goodput_ettr(goodput_law_job(&law, 12500, 100000).value, 120, &slower), 0.939, 5e-4);
    /* Llama 3: 419 unexpected interruptions of 16,384 GPUs in 54 days. */
    CHECK_EQ(goodput_law_parse(&law, "", "419", "54d/job"), 0);
    CHECK_NEAR(goodput_law_job(&law, 2048, 16384).value / 3600, 3.09, 0.005);
    CHECK_EQ(goodput_law_parse(&law, "", "419", "110592d/node"), 0);
    CHECK_NEAR(86400 / law.mtbf_s.value, 3.79e-3, 5e-6);
    /* One interruption as Google counts it: 3600 s, 300 s lost, 300 s until it runs again. */
    CHECK_NEAR(goodput_runtime(3600, 600, &free_saves), 3300.0 / 3900.0, 1e-12);
    /* Product form: 600/620 (1 - (300 + 200 + 300)/3600). */
    struct goodput_costs costs = {20, 200, 0, 300};
    CHECK_NEAR(goodput_product(3600, 600, &costs), 600.0 / 620 * (1 - 800.0 / 3600), 1e-12);
}

/* ---- optima against search ---- */

/* Golden section on log tau: g has one maximum. */
static double search(double m, const struct goodput_costs *c)
{
    double least = fmax(c->complete_s - c->cost_s, m * 1e-9), ratio = (sqrt(5) - 1) / 2;
    double a = log(least), b = log(fmax(m * 4, 2 * least));
    for (int i = 0; i < 200; i++) {
        double low = b - ratio * (b - a), high = a + ratio * (b - a);
        if (goodput_renewal(m, exp(low), c) < goodput_renewal(m, exp(high), c))
            a = low;
        else
            b = high;
    }
    return exp((a + b) / 2);
}

static void no_interval_beats_the_optimum(void)
{
    for (double m = 60; m < 1e7; m *= 7)
        for (double d = m * 1e-7; d < 3 * m; d *= 11)
            for (int async = 0; async < 3; async++) {
                struct goodput_costs c = {d, d * (1 + 5 * async * async), m / 50, m / 30};
                double tau = goodput_tau_async(m, &c), found = search(m, &c);
                double best = goodput_renewal(m, tau, &c);
                CHECK(best >= goodput_renewal(m, found, &c) * (1 - 1e-12));
                CHECK_NEAR(tau / found, 1, 2e-4); /* the top is flat: half the digits */
                CHECK(best > 0 && best < 1);
            }
}

static void small_costs_lose_no_digits(void)
{
    /* Where the series of W takes over, and where the argument of W has lost x altogether. */
    double below = goodput_tau_exact(1, 0.99999e-5), above = goodput_tau_exact(1, 1.00001e-5);
    CHECK_NEAR((above - below) / below, 1e-5, 2e-7);
    for (double x = 1e-4; x > 1e-20; x /= 10) /* sqrt(2x) - x/3 ...: Young's from above */
        CHECK_NEAR(goodput_tau_exact(1, x) / goodput_tau_young(1, x), 1, sqrt(x));
}

static void steps_are_the_better_neighbour(void)
{
    for (double step = 0.3; step < 4000; step *= 3)
        for (double d = 0.5; d < 500; d *= 9) {
            struct goodput_costs c = {d, d * 4, 30, 200};
            double g, best = 0;
            int64_t k = goodput_steps(20000, step, &c, &g), found = 0;
            for (int64_t i = 1; i < 30000; i++) {
                double here = goodput_renewal(20000, (double)i * step, &c);
                if (here > best) {
                    best = here;
                    found = i;
                }
            }
            CHECK_EQ(k, found);
            CHECK_NEAR(g, best, 0);
        }
    struct goodput_costs late = {1, 100, 0, 0};
    CHECK_EQ(goodput_fewest_steps(10, &late), 10); /* 9.9 steps until it is published */
    struct goodput_costs whole = {0, 2.1, 0, 0};   /* 7 steps, though the quotient is a bit above */
    CHECK(2.1 / 0.3 > 7);
    CHECK_EQ(goodput_fewest_steps(0.3, &whole), 7);
    CHECK_EQ(goodput_steps(50, 10, &late, NULL), 10);
    /* More than can be counted is the most that can, and no other number. */
    struct goodput_costs never = {1e11, 1e11, 0, 0}, later = {1, 1e12, 0, 0};
    double g;
    CHECK_EQ(goodput_steps(1e12, 1e-9, &never, &g), INT64_C(1) << 62);
    CHECK(g > 0 && g < 1);
    CHECK_EQ(goodput_fewest_steps(1e-9, &later), INT64_C(1) << 62);
}

static void goodput_moves_the_right_way(void)
{
    struct goodput_costs c = {10, 60, 20, 100};
    double g = goodput_renewal(5000, 400, &c);
    struct goodput_costs worse[] = {
        {11, 61, 20, 100}, {10, 70, 20, 100}, {10, 60, 21, 100}, {10, 60, 20, 101}};
    for (int i = 0; i < 4; i++)
        CHECK(goodput_renewal(5000, 400, &worse[i]) < g);
    CHECK(goodput_renewal(5001, 400, &c) > g);
    struct goodput_costs ideal = {1e-3, 1e-3, 0.1, 1};
    CHECK(goodput_renewal(1e6, goodput_tau_async(1e6, &ideal), &ideal) > 0.999);
    /* First order is first order: far from failures all forms say the same. */
    double tau = goodput_tau_young(1e9, 10);
    CHECK_NEAR(goodput_renewal(1e9, tau, &c), goodput_first_order(1e9, tau, &c), 1e-7);
    CHECK_NEAR(goodput_renewal(1e9, tau, &c), goodput_product(1e9, tau, &c), 1e-7);
}

/* ---- a job, event by event ---- */

struct job {
    double m, tau;
    struct goodput_costs costs;
    uint64_t key, draws;
    double now, next_failure;
    double done, saved;         /* useful seconds: reached, and published */
    double pending, pending_at; /* a save that is on its way: what it holds, when it is published */
};

static void draw_failure(struct job *j)
{
    j->next_failure = j->now - j->m * log1p(-rng_uniform(j->key, j->draws++));
}

static void settle(struct job *j, double now)
{
    if (j->pending_at <= now) {
        j->saved = j->pending;
        j->pending_at = INFINITY;
    }
}

/* Let time pass; false: a failure came first. */
static bool pass(struct job *j, double seconds)
{
    bool failed = j->next_failure < j->now + seconds;
    j->now = failed ? j->next_failure : j->now + seconds;
    settle(j, j->now);
    return !failed;
}

/* From one failure to the next. */
static void cycle(struct job *j)
{
    draw_failure(j);
    j->done = j->saved;
    j->pending_at = INFINITY; /* what was on its way died with the job */
    if (!pass(j, j->costs.detect_s) || !pass(j, j->costs.restart_s))
        return;
    for (;;) {
        if (!pass(j, j->tau))
            return;
        j->done += j->tau;
        if (isfinite(j->pending_at) && !pass(j, j->pending_at - j->now))
            return;
        j->pending = j->done;
        j->pending_at = j->now + j->costs.complete_s;
        if (!pass(j, j->costs.cost_s))
            return;
    }
}

enum { CYCLES = 200000 };

/* Share of wall time that was published, and its standard error as a ratio of means. */
static double simulate(double m, double tau, const struct goodput_costs *costs, uint64_t key,
                       double *error)
{
    struct job j = {.m = m, .tau = tau, .costs = *costs, .key = rng_key(key, "failures")};
    double wall = 0, work = 0, ww = 0, wk = 0, kk = 0;
    j.pending_at = INFINITY;
    for (int i = 0; i < CYCLES; i++) {
        double began = j.now, had = j.saved;
        cycle(&j);
        double dt = j.now - began, dk = j.saved - had;
        wall += dt;
        work += dk;
        ww += dt * dt;
        wk += dt * dk;
        kk += dk * dk;
    }
    double g = work / wall;
    *error = sqrt(kk - 2 * g * wk + g * g * ww) / wall;
    return g;
}

static void a_simulated_job_gets_what_is_expected(void)
{
    static const struct {
        double m, tau;
        struct goodput_costs costs;
    } jobs[] = {
        {3600, 600, {20, 20, 100, 200}},  /* synchronous */
        {3600, 600, {20, 200, 100, 200}}, /* asynchronous */
        {3600, 200, {5, 190, 0, 300}},    /* saves back to back */
        {3600, 185, {5, 190, 0, 300}},    /* on the bound */
        {11160, 370.8, {6.3, 148.8, 60, 240}}, {900, 700, {300, 300, 100, 400}}, /* hardly moving */
    };
    for (int i = 0; i < 6; i++) {
        double error;
        double g = simulate(jobs[i].m, jobs[i].tau, &jobs[i].costs, (uint64_t)i, &error);
        double expected = goodput_renewal(jobs[i].m, jobs[i].tau, &jobs[i].costs);
        printf("simulated %.5f +- %.5f, expected %.5f (%+.2f standard errors)\n", g, error,
               expected, (g - expected) / error);
        CHECK(fabs(g - expected) < 3.5 * error);
        CHECK(error < 3e-3 * expected || jobs[i].m < 1000);
    }
}

/* ---- two levels ---- */

/* Failures that a local save survives and others, each in its own time; saves are synchronous. A local save
 * every `local` of work, every `times`-th one global. -> share of wall time that was kept. */
static double simulate_levels(double m, double share, double local, int times, double local_cost,
                              double global_cost, double down, uint64_t seed)
{
    uint64_t key = rng_key(seed, "levels"), draws = 0;
    double now = 0, done = 0, kept[2] = {0}; /* by a local save, by a global one */
    for (int i = 0; i < CYCLES; i++) {
        double fails = now - m * log1p(-rng_uniform(key, draws++));
        now += down;
        for (int k = 1; now < fails; k++) {
            bool global = k % times == 0;
            now += local + (global ? global_cost : local_cost);
            if (now >= fails)
                break;
            done += local;
            kept[0] = done;
            kept[1] = global ? done : kept[1];
        }
        now = fails;
        bool survives = rng_uniform(key, draws++) < share;
        done = kept[!survives];
        kept[0] = done;
    }
    return done / now;
}

static void two_levels_are_what_they_say(void)
{
    static const double shares[] = {0.5, 0.8, 0.95};
    for (int i = 0; i < 3; i++) {
        double m = 1e5, p = shares[i];
        struct goodput_costs c = {40, 40, 5, 25};
        struct goodput_levels levels;
        goodput_two_levels(&levels, m, 0.5, &c, 1.0, p);
        double times = levels.global_s / levels.local_s;
        CHECK_NEAR(levels.local_s, sqrt(2 * 1.0 * m / p), 0.5); /* whole steps */
        CHECK_NEAR(levels.global_s, sqrt(2 * 40 * m / (1 - p)), levels.local_s);
        CHECK_NEAR(times, round(times), 1e-9);
        /* One local interval more or less between global saves wastes no less time. */
        double m2 = m / (1 - p), tau = levels.global_s, waste = 40 / tau + tau / (2 * m2);
        for (int more = -1; more <= 1; more += 2) {
            double other = tau + more * levels.local_s;
            CHECK(40 / other + other / (2 * m2) >= waste);
        }
        CHECK_NEAR(fmod(levels.local_s, 0.5), 0, 1e-9);
        /* First order: sum of sqrt(2 d_l / M_l), less the time that failures take. */
        double first = 1 - sqrt(2 * 1.0 * p / m) - sqrt(2 * 40 * (1 - p) / m) - 30 / m;
        CHECK_NEAR(levels.first_order, first, 1e-3 * (1 - first) + 1e-4);
        double g =
            simulate_levels(m, p, levels.local_s, (int)round(times), 1.0, 40, 30, (uint64_t)i);
        printf("two levels, %g %% local: simulated %.5f, first order %.5f\n", 100 * p, g,
               levels.first_order);
        CHECK_NEAR(g, levels.first_order, 2 * (1 - g) * (1 - g)); /* second order, and chance */
        CHECK(levels.first_order > goodput_first_order(m, goodput_tau_young(m, 40), &c));
    }
    struct goodput_levels late;
    struct goodput_costs slow = {1, 500, 0, 0};
    goodput_two_levels(&late, 1000, NAN, &slow, 1, 0.5); /* published before the next begins */
    CHECK(late.global_s >= 499 && late.global_s < 499 + late.local_s);
    CHECK_NEAR(fmod(late.global_s / late.local_s + 0.5, 1), 0.5, 1e-9);
}

int main(void)
{
    optima_have_their_golden_values();
    the_model_has_its_golden_values();
    published_figures_come_out();
    no_interval_beats_the_optimum();
    small_costs_lose_no_digits();
    steps_are_the_better_neighbour();
    goodput_moves_the_right_way();
    a_simulated_job_gets_what_is_expected();
    two_levels_are_what_they_say();
    return test_end();
}
