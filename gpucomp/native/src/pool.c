/* Threads that help a context's runs, and the call of the native runner. As gpucomp/runtime/workers.py and runner.py. */
#define _DEFAULT_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "context.h"

#define LISTENS 10000 /* spins after a run, in which a helper listens for the next one: some tenths of a millisecond */
#define EPOCHS ((uint64_t)1 << 31)
#define CLAIMED 0 /* words of a launch's state: every thread has CLAIMED, the first thread's DONE counts for all */
#define DONE 8

/* The native runner's functions; see gpucomp/codegen/llvm/ir/launch_list.py. */
typedef void run_function(void *table, int64_t first, int64_t last, void *context, int64_t thread, int64_t threads, int64_t epoch,
                          void *notes);
typedef void loops_function(void *table, int64_t first, int64_t last, void *context, int64_t thread, int64_t threads,
                            int64_t epoch, void *notes, void *loops);
typedef void help_function(void *table, int64_t first, int64_t last, void *context, int64_t thread, int64_t threads,
                           int64_t epoch, void *notes, void *loops, void *bell, int64_t known, int64_t spins, int64_t delay);
typedef void alone_function(void *table, int64_t first, int64_t last, void *context, void *notes, void *loops);

struct job {
    const struct runner *runner;
    void *table, *loops, *words;
    int64_t rows, threads, epoch;
};

struct helper {
    pthread_t thread;
    struct pool *pool;
    int64_t number;
};

struct pool {
    _Alignas(GCRT_LINE) _Atomic uint64_t bell; /* rises with every job; helpers listen to it */
    _Alignas(GCRT_LINE) pthread_mutex_t lock;
    pthread_cond_t wake, left;
    struct job job; /* without a runner: there is none */
    bool ends;
    uint64_t epoch;
    int inside; /* helpers that have taken a job and are not through with it */
    int helpers;
    struct helper *helper;
};

static void enter(const struct job *job, int64_t thread)
{
    if (job->runner->run_loops && job->loops)
        ((loops_function *)job->runner->run_loops)(job->table, 0, job->rows, job->words, thread, job->threads, job->epoch, NULL,
                                                   job->loops);
    else
        ((run_function *)job->runner->run)(job->table, 0, job->rows, job->words, thread, job->threads, job->epoch, NULL);
}

/* What a helper does: jobs, and between them it listens in native code for a while before it sleeps. */
static void *help(void *given)
{
    const struct helper *helper = given;
    struct pool *pool = helper->pool;
    uint64_t heard = 0;
    for (;;) {
        pthread_mutex_lock(&pool->lock);
        while (atomic_load_explicit(&pool->bell, memory_order_relaxed) == heard && !pool->ends)
            pthread_cond_wait(&pool->wake, &pool->lock);
        heard = atomic_load_explicit(&pool->bell, memory_order_relaxed);
        struct job job = pool->job;
        bool ends = pool->ends, works = job.runner && !ends;
        pool->inside += works;
        pthread_mutex_unlock(&pool->lock);
        if (ends)
            return NULL;
        if (!works)
            continue;
        enter(&job, helper->number);
        pthread_mutex_lock(&pool->lock);
        if (--pool->inside == 0)
            pthread_cond_signal(&pool->left);
        pthread_mutex_unlock(&pool->lock);
        if (job.runner->help) /* no launches: it only listens, and the job's table may change meanwhile */
            ((help_function *)job.runner->help)(job.table, 0, 0, job.words, helper->number, job.threads, job.epoch, NULL,
                                                job.loops, (void *)&pool->bell, (int64_t)heard, LISTENS, 0);
    }
}

void gcrt_withdraw(struct pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->job.runner = NULL;
    while (pool->inside)
        pthread_cond_wait(&pool->left, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

struct pool *gcrt_pool(int threads)
{
    struct pool *pool = aligned_alloc(GCRT_LINE, (size_t)gcrt_up(sizeof *pool, GCRT_LINE));
    struct helper *helpers = calloc((size_t)threads, sizeof *helpers);
    if (!pool || !helpers) {
        free(pool);
        free(helpers);
        return NULL;
    }
    *pool = (struct pool){.helper = helpers};
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->left, NULL);
    for (int k = 1; k < threads; k++) {
        struct helper *helper = helpers + pool->helpers;
        *helper = (struct helper){.pool = pool, .number = k};
        if (pthread_create(&helper->thread, NULL, help, helper)) {
            gcrt_end_pool(pool);
            return NULL;
        }
        pool->helpers++;
    }
    return pool;
}

void gcrt_end_pool(struct pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->ends = true;
    atomic_fetch_add(&pool->bell, 1);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    for (int k = 0; k < pool->helpers; k++)
        pthread_join(pool->helper[k].thread, NULL);
    pthread_cond_destroy(&pool->wake);
    pthread_cond_destroy(&pool->left);
    pthread_mutex_destroy(&pool->lock);
    free(pool->helper);
    free(pool);
}

/* Reset the launches for run number `epoch`: no task is claimed or done. */
static void begin(struct form *form, int most, int threads, uint64_t epoch)
{
    for (size_t row = 0; row < form->program->rows; row++) {
        _Atomic uint64_t *states = form->states + row * (size_t)most * GCRT_STATE_WORDS;
        uint64_t tasks = form->table[4 * row + 2];
        for (size_t t = 0; t < (size_t)most; t++) { /* threads beyond those of the run get no tasks */
            uint64_t first = tasks * (t < (size_t)threads ? t : (size_t)threads) / (size_t)threads;
            atomic_store_explicit(states + t * GCRT_STATE_WORDS + CLAIMED, epoch << 32 | first, memory_order_relaxed);
        }
        atomic_store_explicit(states + DONE, 0, memory_order_relaxed);
    }
    atomic_thread_fence(memory_order_release);
}

void gcrt_run_rows(struct gpucomp_context *context, struct form *form, int threads)
{
    const struct runner *runner = &form->program->runner;
    int64_t rows = (int64_t)form->program->rows;
    if (!rows) /* all outputs are constants or inputs, and there is no runner */
        return;
    if (threads == 1 && runner->alone) {
        ((alone_function *)runner->alone)(form->table, 0, rows, context->words, NULL, form->loops);
        return;
    }
    struct pool *pool = context->pool;
    pool->epoch = (pool->epoch + 1) % EPOCHS;
    struct job job = {runner, form->table, form->loops, context->words, rows, threads, (int64_t)pool->epoch};
    begin(form, context->threads, threads, pool->epoch);
    if (threads > 1) {
        pthread_mutex_lock(&pool->lock);
        pool->job = job;
        atomic_fetch_add_explicit(&pool->bell, 1, memory_order_release);
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->lock);
    }
    enter(&job, 0);
}
