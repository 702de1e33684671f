#include "sim/fiber.h"

#include <stdlib.h>
#include <ucontext.h>

#include "base/assert.h"
#include "sim/world_int.h"

/* The sanitizers must be told when the stack is another one. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define HAS_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define HAS_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#define HAS_TSAN 1
#endif
#ifdef HAS_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef HAS_TSAN
#include <sanitizer/tsan_interface.h>
#endif

/* A barrier's round is read into 64 KiB on the heap; what is on the stack stays far below this. */
#define STACK_BYTES (256u << 10)

struct sh_fiber {
    void (*run)(void *arg);
    void *arg;
    ucontext_t own, resumer;
    bool is_begun, has_ended;
    uint8_t *stack;
    const void *resumer_stack;
    size_t resumer_bytes;
    void *tsan, *resumer_tsan;
};

static struct sh_fiber *running;

/* Before and after each switch, by the side that leaves and the one that comes. */
static void leave(void **saved_out, const void *stack, size_t bytes, void *tsan)
{
    (void)saved_out, (void)stack, (void)bytes, (void)tsan;
#ifdef HAS_ASAN
    __sanitizer_start_switch_fiber(saved_out, stack, bytes);
#endif
#ifdef HAS_TSAN
    __tsan_switch_to_fiber(tsan, 0);
#endif
}

static void arrive(void *saved, const void **stack_out, size_t *bytes_out)
{
    (void)saved, (void)stack_out, (void)bytes_out;
#ifdef HAS_ASAN
    __sanitizer_finish_switch_fiber(saved, stack_out, bytes_out);
#endif
}

static void begin(void)
{
    struct sh_fiber *fiber = running;
    arrive(NULL, &fiber->resumer_stack, &fiber->resumer_bytes);
    fiber->run(fiber->arg);
    fiber->has_ended = true;
    leave(NULL, fiber->resumer_stack, fiber->resumer_bytes, fiber->resumer_tsan);
    /* Its context goes on where it was resumed. */
}

struct sh_fiber *sh_fiber_create(void (*run)(void *arg), void *arg)
{
    struct sh_fiber *fiber = sh_sim_alloc(sizeof *fiber);
    fiber->run = run;
    fiber->arg = arg;
    fiber->stack = sh_sim_alloc(STACK_BYTES);
#ifdef HAS_TSAN
    fiber->tsan = __tsan_create_fiber(0);
#endif
    return fiber;
}

void sh_fiber_destroy(struct sh_fiber *fiber)
{
    if (!fiber)
        return;
    SH_ASSERT(!fiber->is_begun || fiber->has_ended);
#ifdef HAS_TSAN
    __tsan_destroy_fiber(fiber->tsan);
#endif
    free(fiber->stack);
    free(fiber);
}

void sh_fiber_resume(struct sh_fiber *fiber)
{
    void *saved = NULL;
    SH_ASSERT(!running && !fiber->has_ended);
    running = fiber;
    if (!fiber->is_begun) {
        fiber->is_begun = true;
        int failed = getcontext(&fiber->own);
        SH_ASSERT(!failed);
        fiber->own.uc_stack.ss_sp = fiber->stack;
        fiber->own.uc_stack.ss_size = STACK_BYTES;
        fiber->own.uc_link = &fiber->resumer;
        makecontext(&fiber->own, begin, 0);
    }
#ifdef HAS_TSAN
    fiber->resumer_tsan = __tsan_get_current_fiber();
#endif
    leave(&saved, fiber->stack, STACK_BYTES, fiber->tsan);
    int failed = swapcontext(&fiber->resumer, &fiber->own);
    SH_ASSERT(!failed);
    arrive(saved, NULL, NULL);
    running = NULL;
}

bool sh_fiber_ended(const struct sh_fiber *fiber)
{
    return fiber->has_ended;
}

void sh_fiber_pause(void)
{
    struct sh_fiber *fiber = running;
    void *saved = NULL;
    SH_ASSERT(fiber);
    leave(&saved, fiber->resumer_stack, fiber->resumer_bytes, fiber->resumer_tsan);
    int failed = swapcontext(&fiber->own, &fiber->resumer);
    SH_ASSERT(!failed);
    arrive(saved, &fiber->resumer_stack, &fiber->resumer_bytes);
}
