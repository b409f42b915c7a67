/* A profiler that counts ranges: NVTX_INJECTION64_PATH names it, and what it saw goes to the file of
 * FAKE_NVTX when the program ends: "NAME COUNT" a line, and how deep ranges went and what stayed open. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <nvtx3/nvToolsExt.h>

enum { NAMES = 64 };

static struct {
    char name[32];
    long count;
} seen[NAMES];
static long depth, deepest;

static int NVTX_API push(const char *name)
{
    for (int i = 0; i < NAMES; i++) {
        if (seen[i].count > 0 && strncmp(seen[i].name, name, sizeof seen[i].name - 1) != 0)
            continue;
        strncpy(seen[i].name, name, sizeof seen[i].name - 1);
        seen[i].count++;
        break;
    }
    depth++;
    deepest = depth > deepest ? depth : deepest;
    return (int)depth - 1;
}

static int NVTX_API pop(void)
{
    return (int)--depth;
}

static void say(void)
{
    const char *path = getenv("FAKE_NVTX");
    FILE *to = path != NULL ? fopen(path, "w") : NULL;
    if (to == NULL)
        return;
    for (int i = 0; i < NAMES && seen[i].count > 0; i++)
        fprintf(to, "%s %ld\n", seen[i].name, seen[i].count);
    fprintf(to, "deepest %ld\nopen %ld\n", deepest, depth);
    fclose(to);
}

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get);
int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get)
{
    const NvtxExportTableCallbacks *table = get(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable functions = NULL;
    unsigned size = 0;
    if (table == NULL || !table->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &functions, &size))
        return 0;
    *functions[NVTX_CBID_CORE_RangePushA] = (NvtxFunctionPointer)push;
    *functions[NVTX_CBID_CORE_RangePop] = (NvtxFunctionPointer)pop;
    atexit(say);
    return 1;
}
