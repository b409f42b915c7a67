/* Every layout and policy of 1, 2, 4 and 8 ranks does the work of one rank: Llama style, untied head,
 * kv heads that tp=4 and tp=8 replicate. */
#include "tests/layout_gate.h"

int main(void)
{
    return layout_gate(MODEL_LLAMA);
}
