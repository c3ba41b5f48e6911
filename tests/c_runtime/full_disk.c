/* Opens a model while no file can be longer than some bytes, as on a full disk: full_disk FILE CACHE. */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>

#include "gpucomp.h"

int main(int count, char **given)
{
    const struct rlimit limit = {600, 600};
    gpucomp_error error = GPUCOMP_ERROR_INIT;
    gpucomp_open_options options = GPUCOMP_OPEN_OPTIONS_INIT;
    gpucomp_model_info info = {.size = sizeof info};
    gpucomp_model *model;
    if (count != 3 || signal(SIGXFSZ, SIG_IGN) == SIG_ERR || setrlimit(RLIMIT_FSIZE, &limit))
        return 2;
    options.cache = given[2];
    if (gpucomp_open(given[1], &options, &model, &error) || gpucomp_describe(model, &info, &error)) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    printf("%llu\n", (unsigned long long)info.compiled);
    gpucomp_close(model);
    return 0;
}
