#include "analysis/import_names.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "analysis/import.h"

struct known_name {
    struct import_name name;
    const char *names; /* separated by '|'; the first is ours */
};

#define FIGURE(index_, scale_, names_)                                                             \
    {                                                                                              \
        {IMPORT_A_FIGURE, IMPORT_##index_, scale_}, names_                                         \
    }
#define WORD(index_, names_)                                                                       \
    {                                                                                              \
        {IMPORT_A_WORD, WORD_##index_, 1.0}, names_                                                \
    }

static const struct known_name known[] = {
    FIGURE(DEVICES, 1.0,
           "gpus|ranks|gpu|devices|n_gpus|num_gpus|ngpus|n_devices|num_devices|world_size|"
           "accelerators|chips|tpus|n_ranks"),
    FIGURE(NODES, 1.0, "nodes|node|hosts|n_nodes|num_nodes|nnodes|servers"),
    FIGURE(DEVICES_PER_NODE, 1.0, "ranks_per_node|gpus_per_node|devices_per_node"),
    FIGURE(STEP, 1.0, "step|idx|iteration|iter|step_index"),
    FIGURE(STEP_S, 1.0,
           "step_s|step_time_s|iter_s|iteration_s|iteration_time_s|step_time|s_per_step|"
           "seconds_per_step|time_per_step_s|train_step_time_s|step_seconds|iter_time_s"),
    FIGURE(STEP_S, 1e-3,
           "step_ms|step_ms_mean|step_time_ms|iter_ms|iteration_ms|iteration_time_ms|ms_per_step|"
           "iter_time_ms"),
    FIGURE(STEP_S, 1e-6, "step_us|step_time_us"),
    FIGURE(STEP_S, 1e-9, "step_ns|step_time_ns"),
    FIGURE(STEP_LOW_S, 1e-3, "ci_lo_ms"),
    FIGURE(STEP_HIGH_S, 1e-3, "ci_hi_ms"),
    FIGURE(STEPS_MEASURED, 1.0, "n_iter|n_steps|steps_measured"),
    FIGURE(GLOBAL_BATCH, 1.0, "gbs|global_batch|global_batch_size|batch|batch_size"),
    FIGURE(MICRO_BATCH, 1.0, "mbs|micro_batch|micro_batch_size"),
    FIGURE(REPLICA_BATCH, 1.0, "batch_per_dp|batch_per_replica"),
    FIGURE(SEQUENCE, 1.0, "seq|sequence|seq_len|seqlen|sequence_length|seq_length"),
    FIGURE(TP, 1.0, "tp|tensor_parallel|tensor_parallel_size"),
    FIGURE(PP, 1.0, "pp|pipeline_parallel|pipeline_parallel_size"),
    FIGURE(CP, 1.0, "cp|context_parallel|context_parallel_size"),
    FIGURE(DP, 1.0, "dp|data_parallel|data_parallel_size"),
    FIGURE(EP, 1.0, "ep|expert_parallel|expert_parallel_size"),
    FIGURE(EXPERTS, 1.0, "experts|n_experts|num_experts"),
    FIGURE(PARAMETERS, 1.0, "parameters|params|n_params|n_parameters"),
    FIGURE(PARAMETERS, 1e9, "params_b|parameters_b|params_billion|billion_parameters"),
    FIGURE(LAYERS, 1.0, "layers|n_layers|num_layers"),
    FIGURE(HIDDEN, 1.0, "hidden|hidden_size"),
    FIGURE(HEADS, 1.0, "heads|n_heads|num_heads|attention_heads"),
    FIGURE(VOCABULARY, 1.0, "vocabulary|vocab|vocab_size"),
    FIGURE(FLOPS_PER_SAMPLE, 1.0,
           "flops_per_sample|flops_per_sequence|model_flops_per_sample|model_flops_per_sequence"),
    FIGURE(PEAK_TFLOPS, 1.0, "peak_tflops_per_s_gpu|peak_tflops|peak_tflops_per_s"),
    FIGURE(TOKENS_PER_S, 1.0, "tokens_per_s|tok_per_s|tokens_per_sec|tokens_per_second"),
    FIGURE(TOKENS_PER_S_DEVICE, 1.0,
           "tokens_per_s_gpu|tokens_per_s_per_gpu|tokens_per_s_device|tokens_per_s_per_device|"
           "tok_per_s_per_gpu|tokens_per_gpu_per_s|tokens_per_sec_per_gpu"),
    FIGURE(SAMPLES_PER_S, 1.0,
           "samples_per_s|sequences_per_s|samples_per_sec|images_per_s|samples_per_second"),
    FIGURE(TFLOPS_DEVICE, 1.0,
           "tflops_per_s_gpu|tflops_per_gpu|tflop_per_s_per_gpu|tflops_per_s_per_gpu|"
           "tflop_per_s_per_device|tflops_per_device|tflops"),
    FIGURE(PFLOPS, 1.0, "aggregate_pflops|pflops|aggregate_pf|aggregate_pflop_per_s"),
    FIGURE(MFU, 1.0, "mfu"),
    FIGURE(MFU, 0.01, "mfu_pct|mfu_percent|pct_of_peak|peak_pct"),
    FIGURE(HFU, 1.0, "hfu"),
    FIGURE(HFU, 0.01, "hfu_pct|hfu_percent"),
    FIGURE(EFFICIENCY, 0.01, "efficiency_pct|scaling_pct|scaling_efficiency_pct"),
    FIGURE(EFFICIENCY, 1.0, "efficiency"),
    FIGURE(SPEEDUP, 1.0, "speedup"),
    FIGURE(DAYS, 1.0, "days|training_days"),
    FIGURE(TOKENS_TOTAL, 1.0, "tokens_total|training_tokens|total_tokens"),
    FIGURE(TOKENS_PER_STEP, 1.0, "tokens_per_step|tokens_per_batch"),
    FIGURE(SAMPLES_TO_TARGET, 1.0, "samples_to_target"),
    FIGURE(TIME_TO_WORK_S, 1.0, "time_to_work_s|time_to_target_s|time_to_train_s"),
    FIGURE(TIME_TO_WORK_S, 60.0, "time_to_train_min|time_to_target_min"),
    FIGURE(GOODPUT, 0.01, "goodput_pct"),
    FIGURE(GOODPUT, 1.0, "goodput"),
    FIGURE(LOSS, 1.0, "final_loss|train_loss"),
    FIGURE(BYTES, 1.0, "bytes|size|size_b|payload|payload_bytes|message_bytes|size_bytes"),
    FIGURE(TIME_US, 1.0, "time_us|latency_us"),
    FIGURE(TIME_US, 1e3, "time_ms|latency_ms"),
    WORD(SERIES, "series|case|curve|scheme|workload"),
    WORD(MODEL, "model|model_name"),
    WORD(DEVICE, "device|gpu_type|accelerator|device_name"),
    WORD(PRECISION, "dtype|precision"),
    WORD(FABRIC, "fabric|interconnect|network"),
    WORD(MODE, "mode|scaling"),
    WORD(RUN, "run|launch|repeat|trial|launch_id"),
    WORD(CONVENTION, "flop_convention|mfu_convention"),
    WORD(RECOMPUTE, "recompute|recomputation"),
    WORD(PEAK_SOURCE, "peak_source"),
    WORD(SPARSE, "sparse_peak|sparse"),
    WORD(MOE, "moe"),
    WORD(OPERATION, "operation|op|collective"),
};

void import_plain_name(char *plain, size_t size, const char *column)
{
    size_t n = 0;
    for (const char *at = column; *at != '\0' && n + 6 < size; at++) {
        if (isalnum((unsigned char)*at))
            plain[n++] = (char)tolower((unsigned char)*at);
        else if (*at == '%')
            n += (size_t)snprintf(plain + n, size - n, "%spct",
                                  n > 0 && plain[n - 1] != '_' ? "_" : "");
        else if (*at == '/')
            n += (size_t)snprintf(plain + n, size - n, "%sper_",
                                  n > 0 && plain[n - 1] != '_' ? "_" : "");
        else if (n > 0 && plain[n - 1] != '_')
            plain[n++] = '_';
    }
    while (n > 0 && plain[n - 1] == '_')
        n--;
    plain[n] = '\0';
}

static bool is_listed(const char *names, const char *plain)
{
    size_t length = strlen(plain);
    for (const char *at = names; at != NULL; at = strchr(at, '|')) {
        at += *at == '|';
        if (strncmp(at, plain, length) == 0 && (at[length] == '|' || at[length] == '\0'))
            return true;
    }
    return false;
}

/* Letters of `text` but blanks and punctuation, case kept: "(GB/s)" -> "GB/s". */
static void unit_of(char *unit, size_t size, const char *text)
{
    size_t n = 0;
    for (; *text != '\0' && n + 1 < size; text++)
        if (isalpha((unsigned char)*text) || *text == '/')
            unit[n++] = *text;
    unit[n] = '\0';
}

/* GB/s, and what must not be taken for it. */
static const char *bandwidth(const char *column, struct import_name *out)
{
    static const struct {
        const char *units;
        double scale; /* 0: may be bits or bytes */
    } units[] = {{"GBps|GB/s|GBpers|GBs", 1.0},
                 {"GiBps|GiB/s|GiBpers", 1.073741824},
                 {"MBps|MB/s|MBpers", 1e-3},
                 {"Gbps|Gb/s|Gbit/s|Gbitps|Gbitpers|Gbits/s", 0.125},
                 {"gbps|GBPS|gb/s|gbpers|mbps|MBPS|mb/s|gibps|gib/s", 0.0}};
    char unit[32];
    int index = strncmp(column, "busbw", 5) == 0 ? IMPORT_BUSBW : IMPORT_ALGBW;
    unit_of(unit, sizeof unit, column + 5);
    *out = (struct import_name){IMPORT_A_FIGURE, index, 1.0};
    if (unit[0] == '\0') /* as nccl-tests prints it: GB/s */
        return NULL;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (is_listed(units[i].units, unit)) {
            out->scale = units[i].scale;
            return units[i].scale > 0.0
                       ? NULL
                       : "may mean bits or bytes: write GBps for 10^9 B/s, GiBps for 2^30 B/s, "
                         "Gbps for 10^9 bit/s";
        }
    return "has a unit that is not known: GBps, GiBps, MBps and Gbps are";
}

const char *import_name(const char *column, struct import_name *out)
{
    char plain[64];
    *out = (struct import_name){IMPORT_NOTHING, 0, 1.0};
    if (strncmp(column, "busbw", 5) == 0 || strncmp(column, "algbw", 5) == 0)
        return bandwidth(column, out);
    import_plain_name(plain, sizeof plain, column);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (is_listed(known[i].names, plain)) {
            *out = known[i].name;
            break;
        }
    return NULL;
}

const char *import_name_of(enum import_target target, int index)
{
    static char text[32]; /* of the last call: messages name one column at a time */
    const char *names = index == IMPORT_BUSBW ? "busbw" : "algbw";
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].name.target == target && known[i].name.index == index) {
            names = known[i].names;
            break;
        }
    snprintf(text, sizeof text, "%.*s", (int)strcspn(names, "|"), names);
    return text;
}
