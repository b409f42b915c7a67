#include "driver/point_watch.h"

#include <stdio.h>

#include "analysis/audit.h"
#include "analysis/energy.h"
#include "base/err.h"
#include "driver/point_row.h"

struct telemetry *point_watch_open(struct job *job, int rank)
{
    struct telemetry *telemetry = NULL;
    const char *bus = job->found.ranks[job->rank].device_bus;
    if (!job->study.telemetry || job->backend.device->probe == NULL || job->shared_device)
        return NULL;
    if (telemetry_open(&telemetry, NULL, bus, rank) != 0) {
        if (job->rank == 0 && !job->without_telemetry)
            fprintf(stderr, "scalestudy: %s; the study goes on without telemetry\n",
                    fail_message());
        job->without_telemetry = true;
        fail_clear();
    }
    return telemetry;
}

void point_watch_note(struct record_point *rows, int64_t at_ns)
{
    struct energy energy;
    struct audit audit;
    char text[512];
    if (energy_known(rows)) {
        energy_of_point(&energy, rows, 1);
        if (energy_sentence(text, sizeof text, &energy))
            point_event(rows, "warning", at_ns, text);
    }
    if (audit_sentence(text, sizeof text, rows)) {
        audit_of_point(&audit, rows, 1);
        bool agrees = audit.steps > 0 && audit.off <= AUDIT_ALLOWED;
        point_event(rows, agrees ? "note" : "warning", at_ns, text);
    }
}

void point_watch_print(const struct record_point *rows)
{
    char text[512];
    if (audit_sentence(text, sizeof text, rows))
        printf("# %s\n", text);
}
