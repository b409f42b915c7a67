/* Every layout and policy of 1, 2, 4 and 8 ranks does the work of one rank: GPT-2 style, tied head. */
#include "tests/layout_gate.h"

int main(void)
{
    return layout_gate(MODEL_GPT2);
}
