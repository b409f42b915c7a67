/* The state back from a checkpoint: where the steps of a point begin, and where its section ends. */
#include "driver/checkpoint_section.h"

#include <stdio.h>

#include "base/err.h"
#include "base/units.h"
#include "driver/agree.h"
#include "driver/checkpoint_place.h"
#include "driver/point_row.h"

enum { LOAD_AGAIN = -1, LOAD_RESUME, LOAD_END }; /* `save` of their rows; again has none */
enum { TRIES = 3, PAUSE_NS = 200000000 };

static void add_restore(struct record_point *local, const struct checkpoint_source *source,
                        const struct checkpoint_loaded *loaded, int rank, int index)
{
    struct checkpoint_row *row = RECORD_ADD(&local->checkpoints, 1);
    const char *mode = checkpoint_terms_get(&source->manifest.about, "mode");
    point_text(row->kind, sizeof row->kind, "restore");
    point_text(row->mode, sizeof row->mode, mode ? mode : "");
    checkpoint_place_type(source->folder, row->file_system, sizeof row->file_system);
    row->save = index;
    row->rank = rank;
    row->flags = loaded->direct ? CHECKPOINT_DIRECT : 0;
    row->trained = source->manifest.step;
    row->bytes = loaded->bytes;
    row->complete_ns = loaded->total_ns;
    row->wait_ns = row->call_ns = row->blocked_ns = row->staged_ns = row->written_ns = -1;
    row->first_quarter_ns = row->last_quarter_ns = -1;
    row->read_ns = loaded->read_ns;
    row->verify_ns = loaded->verify_ns;
    row->recut_ns = loaded->recut_ns;
    row->upload_ns = loaded->upload_ns;
}

static void say_resumed(const struct measure *m, const struct checkpoint_source *source)
{
    const struct checkpoint_small *small = &source->manifest.small;
    const char *layout = checkpoint_terms_get(&source->manifest.about, "layout");
    int64_t batch = m->execute->plan->global_batch;
    if (m->layout->rank != 0)
        return;
    printf("# resumed from %s: step %lld, %lld samples, saved by %d rank%s (%s)", source->folder,
           (long long)small->step, (long long)small->consumed, source->manifest.n,
           units_s(source->manifest.n), layout ? layout : "");
    if (small->global_batch != batch)
        printf("; with a batch of %lld sample%s, and here it is %lld",
               (long long)small->global_batch, units_s((double)small->global_batch),
               (long long)batch);
    printf("\n");
    fflush(stdout);
}

/* A rank that has proof speaks before one that could not look. */
static int agree_loaded(int rc, const struct checkpoint_loaded *loaded, const void *parent,
                        bool *damaged)
{
    int proved = agree_named(loaded->damaged ? rc : 0, parent);
    *damaged = proved == FAIL_FILE;
    return proved != 0 ? proved : agree_named(rc, parent);
}

static int try_load(const struct checkpoint_section *of, const char *root, int index,
                    struct checkpoint_source *source, bool *damaged)
{
    struct checkpoint_loaded loaded;
    struct checkpoint_terms terms;
    const struct measure *m = of->measure;
    int rc = 0;
    checkpoint_ask_terms(of->job, of->point, &terms);
    rc = checkpoint_source_open(source, root, &terms, m->layout->rank, m->parent);
    *damaged = rc != 0 && source->manifest.damaged;
    TRY(rc);
    TRY(agree_barrier(m->parent)); /* all read at once */
    rc = checkpoint_load(m->execute, source, &loaded);
    TRY(agree_loaded(rc, &loaded, m->parent, damaged));
    if (index != LOAD_AGAIN)
        add_restore(&of->measure->local, source, &loaded, m->layout->rank, index);
    if (index == LOAD_RESUME)
        say_resumed(m, source);
out:
    return rc;
}

/* `damaged` NULL: who asks has no other. */
static int load_from(const struct checkpoint_section *of, const char *root, int index,
                     bool *damaged)
{
    struct checkpoint_source source;
    bool proved = false;
    int rc = 0;
    for (int i = 0; i < TRIES; i++) {
        if (i > 0) {
            checkpoint_source_close(&source);
            fail_clear();
            units_sleep_ns(PAUSE_NS);
        }
        rc = try_load(of, root, index, &source, &proved);
        if (rc != FAIL_FILE || proved)
            break;
    }
    if (damaged != NULL)
        *damaged = proved;
    else
        rc = checkpoint_source_offer(rc, &source);
    checkpoint_source_close(&source);
    return rc;
}

int checkpoint_resume(const struct checkpoint_section *section)
{
    return load_from(section, section->job->study.resume_from, LOAD_RESUME, NULL);
}

int checkpoint_resume_again(void *section)
{
    const struct checkpoint_section *of = section;
    return load_from(of, of->job->study.resume_from, LOAD_AGAIN, NULL);
}

int checkpoint_resume_at(const struct checkpoint_section *section, const char *folder,
                         bool *damaged)
{
    return load_from(section, folder, LOAD_RESUME, damaged);
}

int checkpoint_read_back(const struct checkpoint_section *section, const char *root)
{
    return load_from(section, root, LOAD_END, NULL);
}
