#include "topologies/launcher.h"

#include <limits.h>
#include <stdlib.h>

/*
 * The innermost launcher comes first: mpirun inside a Slurm job step sees srun's variables, which
 * then describe mpirun's daemons. Slurm counts only with the size of the step: a batch script has a
 * SLURM_PROCID and the SLURM_NTASKS of its job, and is one process.
 */
static const struct {
    const char *name, *world, *rank;
} launchers[] = {
    {"mpirun (Open MPI)", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
    {"mpirun (MVAPICH)", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"},
    {"flux run", "FLUX_JOB_SIZE", "FLUX_TASK_RANK"},
    {"jsrun", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK"},
    {"srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"},
    {"mpiexec (PMI)", "PMI_SIZE", "PMI_RANK"},
    {"PMIx", NULL, "PMIX_RANK"},
};

/* A whole number from 0 in the environment, or -1. */
static int number(const char *variable)
{
    const char *text = variable != NULL ? getenv(variable) : NULL;
    char *end;
    if (text == NULL || *text == '\0')
        return -1;
    long value = strtol(text, &end, 10);
    return *end == '\0' && value >= 0 && value <= INT_MAX ? (int)value : -1;
}

struct launcher launcher_find(void)
{
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        int world = number(launchers[i].world), rank = number(launchers[i].rank);
        if (rank >= 0 && (world > rank || launchers[i].world == NULL))
            return (struct launcher){launchers[i].name, world > 0 ? world : 0, rank};
    }
    return (struct launcher){"", 0, -1};
}
