/* Prints SHA-256 of the beginnings of a text: digests COUNT. Each twice, of a beginning alone and beside another's, and both by the
 * processor's own instructions, where it has them, and without. */
#include <stdio.h>
#include <stdlib.h>

#include "digest.h"

int main(int count, char **given)
{
    size_t most = count == 2 ? strtoul(given[1], NULL, 10) : 0;
    uint8_t *text = malloc(2 * most + 1);
    if (!most || !text)
        return 2;
    for (size_t k = 0; k < 2 * most; k++)
        text[k] = (uint8_t)(k * 7 + k / 251);
    for (size_t k = 0; k <= most; k++)
        for (int fast = 0; fast <= gcrt_has_sha(); fast++) {
            char alone[65], beside[65], longest[65];
            struct digest one = gcrt_digest(text, k, fast), two = gcrt_digest(text, k, fast);
            struct digest other = gcrt_digest(text, 2 * most, fast);
            gcrt_digest_end(&one, alone);
            gcrt_digest_both(&other, &two);
            gcrt_digest_end(&two, beside);
            gcrt_digest_end(&other, longest);
            printf("%zu %s %s %s\n", k, alone, beside, longest);
        }
    free(text);
    return 0;
}
