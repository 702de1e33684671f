/* The frame: alternation, medians, rows. Runs are made up, so that medians are known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "bench/bench_int.h"
#include "bench/idle_steps.h"

/* Each call gives the next rate; what was called goes into the trace. */
struct fake {
    char name;
    unsigned calls;
    const unsigned *rates;
    unsigned fails_at; /* call number from 1; 0: never */
};

static char trace[64];

static enum shoal_err fake_run(void *arg, const struct sh_bench_flags *flags,
                               enum sh_placement placement, struct sh_bench_result *result_out)
{
    struct fake *fake = arg;
    assert_int_equal(flags->runs, 3);
    assert_int_equal(placement, SH_PLACE_ONE_CORE);
    trace[strlen(trace)] = fake->name;
    if (++fake->calls == fake->fails_at)
        return SHOAL_ETIMEOUT;
    result_out->seconds = 2;
    result_out->ops = 2 * (uint64_t)fake->rates[fake->calls - 1];
    result_out->bytes = result_out->ops * 500;
    result_out->cpu_ns = result_out->ops * 7;
    result_out->digest = 0xabc;
    sh_bench_figure_add(&result_out->figures, "rate_squared",
                        (double)fake->rates[fake->calls - 1] * fake->rates[fake->calls - 1]);
    sh_bench_figure_add(&result_out->figures, "nothing", 0);
    sh_hist_add(&result_out->latency_ns, 40);
    return SHOAL_OK;
}

static const unsigned our_rates[] = {1, 3000, 1000, 2000}; /* the first is the warm-up */
static const unsigned base_rates[] = {9999, 500, 4000, 1000};
static const struct sh_bench_entry entry = {.name = "fake", .summary = "made up"};

static enum shoal_err measure(bool json, unsigned fails_at, bool versus, char **text_out)
{
    size_t size = 0;
    struct fake ours = {.name = 'o', .rates = our_rates, .fails_at = fails_at};
    struct fake base = {.name = 'b', .rates = base_rates};
    struct sh_bench bench = {.entry = &entry, .flags = {.runs = 3, .seed = 5, .json = json}};
    memset(trace, 0, sizeof trace);
    bench.out = open_memstream(text_out, &size);
    assert_non_null(bench.out);
    sh_bench_machine(bench.machine, sizeof bench.machine);
    enum shoal_err err =
        sh_bench_measure(&bench, "made", SH_PLACE_ONE_CORE, "size=64 keys=uniform", fake_run, &ours,
                         versus ? "other" : NULL, versus ? fake_run : NULL, &base);
    fclose(bench.out);
    return err;
}

static struct sh_json *line_parse(const char *line)
{
    struct sh_json *row = NULL;
    struct sh_json_error error;
    assert_int_equal(sh_json_parse(line, strcspn(line, "\n"), &row, &error), SHOAL_OK);
    return row;
}

static void assert_number(const struct sh_json *row, const char *key, double value)
{
    const struct sh_json *member = sh_json_get(row, key);
    assert_non_null(member);
    assert_float_equal(sh_json_f64(member), value, 1e-6 * value);
}

static void rows_carry_medians(void **state)
{
    (void)state;
    char *text = NULL;
    assert_int_equal(measure(true, 0, true, &text), SHOAL_OK);
    assert_string_equal(trace, "obobobob");
    struct sh_json *base = line_parse(text);
    assert_string_equal(sh_json_text(sh_json_get(base, "system")), "other");
    assert_number(base, "ops_per_s", 1000);
    assert_null(sh_json_get(base, "vs"));
    struct sh_json *ours = line_parse(strchr(text, '\n') + 1);
    assert_string_equal(sh_json_text(sh_json_get(ours, "bench")), "fake");
    assert_string_equal(sh_json_text(sh_json_get(ours, "case")), "made");
    assert_string_equal(sh_json_text(sh_json_get(ours, "system")), "shoal");
    assert_string_equal(sh_json_text(sh_json_get(ours, "placement")), "one-core");
    assert_string_equal(sh_json_text(sh_json_get(ours, "keys")), "uniform");
    assert_string_equal(sh_json_text(sh_json_get(ours, "vs")), "other");
    assert_string_equal(sh_json_text(sh_json_get(ours, "digest")), "0000000000000abc");
    assert_int_equal(sh_json_u64(sh_json_get(ours, "size")), 64);
    assert_int_equal(sh_json_u64(sh_json_get(ours, "seed")), 5);
    assert_number(ours, "ops_per_s", 2000);
    assert_number(ours, "ops_per_s_min", 1000);
    assert_number(ours, "ops_per_s_max", 3000);
    assert_number(ours, "mb_per_s", 1);
    assert_number(ours, "p50_ns", 40);
    assert_number(ours, "p999_ns", 40);
    assert_number(ours, "seconds", 2);
    assert_number(ours, "cpu_ns_per_op", 7);
    assert_number(ours, "ratio_ops_per_s", 2);
    assert_number(ours, "ratio_mb_per_s", 2);
    assert_number(ours, "ratio_p50_ns", 1);
    assert_number(ours, "ratio_p999_ns", 1);
    assert_number(ours, "ratio_cpu_ns_per_op", 1);
    assert_number(ours, "rate_squared", 4e6);
    assert_number(ours, "nothing", 0);
    assert_number(base, "rate_squared", 1e6);
    assert_null(sh_json_get(ours, "ratio_bytes_per_chunk"));
    assert_null(sh_json_get(ours, "bytes_per_chunk"));
    sh_json_free(base);
    sh_json_free(ours);
    free(text);
}

static void a_table_names_the_ratio(void **state)
{
    (void)state;
    char *text = NULL;
    assert_int_equal(measure(false, 0, true, &text), SHOAL_OK);
    assert_non_null(strstr(text, "machine: "));
    assert_non_null(strstr(text, "ratio of medians, shoal to other: ops/s 2.00x"));
    assert_non_null(strstr(text, "\n  rate_squared 4000.0k, nothing 0.00\n"));
    free(text);
    assert_int_equal(measure(false, 0, false, &text), SHOAL_OK);
    assert_string_equal(trace, "oooo");
    assert_null(strstr(text, "ratio"));
    free(text);
}

static void the_first_failure_ends_it(void **state)
{
    (void)state;
    char *text = NULL;
    assert_int_equal(measure(true, 3, true, &text), SHOAL_ETIMEOUT);
    assert_string_equal(trace, "obobo");
    assert_string_equal(text, "");
    free(text);
}

static void even_counts_take_the_middle(void **state)
{
    (void)state;
    struct sh_series series = {.runs = 4, .values = {[SH_METRIC_OPS] = {4, 1, 3, 100}}};
    assert_float_equal(sh_series_median(&series, SH_METRIC_OPS), 3.5, 0);
}

static void figures_are_found_by_name(void **state)
{
    (void)state;
    struct sh_bench_figures figures = {.count = 0};
    for (unsigned i = 0; i < SH_BENCH_FIGURES_MAX; i++)
        sh_bench_figure_add(&figures, i == 7 ? "fill" : "other", i);
    assert_float_equal(sh_bench_figure_get(&figures, "fill"), 7, 0);
    assert_float_equal(sh_bench_figure_get(&figures, "fills"), 0, 0);
}

static void placements_are_those_asked_for(void **state)
{
    (void)state;
    struct sh_bench bench = {.entry = &entry};
    enum sh_placement out[SH_PLACEMENTS];
    assert_int_equal(sh_bench_placements(&bench, out), 1);
    assert_int_equal(out[0], SH_PLACE_FREE);
    bench.flags.placement = "all";
    assert_int_equal(sh_bench_placements(&bench, out), sh_bench_cores() < 2 ? 2 : 4);
    bench.flags.placement = "one-core";
    assert_int_equal(sh_bench_placements(&bench, out), 1);
    assert_int_equal(out[0], SH_PLACE_ONE_CORE);
    bench.flags.cases = "made";
    assert_true(sh_bench_case_wanted(&bench, "made"));
    assert_false(sh_bench_case_wanted(&bench, "other"));
}

/* A step that does nothing takes time all the same, on each core. */
static void idle_steps_are_measured(void **state)
{
    (void)state;
    struct sh_idle_steps steps;
    sh_bench_cores_init();
    assert_int_equal(sh_idle_steps_measure(0.05, &steps), SHOAL_OK);
    assert_int_equal(steps.cores, sh_bench_cores());
    assert_true(steps.count > 0 && steps.longest_ns > 0 && steps.over_1ms <= steps.count);
    assert_int_equal(steps.over_1ms > 0, steps.longest_ns > 1000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_carry_medians),
        cmocka_unit_test(a_table_names_the_ratio),
        cmocka_unit_test(the_first_failure_ends_it),
        cmocka_unit_test(even_counts_take_the_middle),
        cmocka_unit_test(figures_are_found_by_name),
        cmocka_unit_test(placements_are_those_asked_for),
        cmocka_unit_test(idle_steps_are_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
