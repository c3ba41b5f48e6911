/* Reads handwritten digits on a Cortex-M4, without an operating system. Prints by semihosting, which debuggers and QEMU have. */
#include <stdint.h>

#include "digits.h"
#include "images.h"

/* Of the linker script. */
extern uint32_t stack_end[], data_from[], data_begin[], data_end[], bss_begin[], bss_end[];

static _Alignas(DIGITS_ALIGNMENT) uint8_t arena[ARENA]; /* -DARENA=7808: digits.h says how many bytes */

static int semihosting(int operation, const void *argument)
{
    register int r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

static void print(const char *text) { semihosting(0x04, text); } /* SYS_WRITE0 */

static _Noreturn void end(int failed)
{
    const uint32_t how[] = {0x20026, (uint32_t)failed}; /* ADP_Stopped_ApplicationExit, and the exit status */
    semihosting(0x20, how); /* SYS_EXIT_EXTENDED */
    for (;;)
        ;
}

static int read_digits(void)
{
    int error = digits_init(arena, sizeof arena, digits_weights);
    for (unsigned k = 0; !error && k < IMAGES; ++k) {
        float image[DIGITS_INPUT_image], logits[DIGITS_OUTPUT_logits];
        for (unsigned p = 0; p < DIGITS_INPUT_image; ++p)
            image[p] = (float)images[k][p] / 16.0f;
        digits_inputs inputs = {image};
        digits_outputs outputs = {logits};
        error = digits_run(arena, &inputs, &outputs, NULL);
        unsigned best = 0;
        for (unsigned digit = 1; digit < DIGITS_OUTPUT_logits; ++digit)
            best = logits[digit] > logits[best] ? digit : best;
        const char line[] = {(char)('0' + best), '\n', 0};
        print(error ? "" : line);
    }
    if (error) {
        print(digits_error(error));
        print("\n");
    }
    return error;
}

static _Noreturn void reset(void)
{
    *(volatile uint32_t *)0xE000ED88 |= 0xFu << 20; /* CPACR: the unit for floats is on */
    __asm__ volatile("dsb\n\tisb");
    for (uint32_t *to = data_begin, *from = data_from; to < data_end;)
        *to++ = *from++;
    for (uint32_t *to = bss_begin; to < bss_end;)
        *to++ = 0;
    end(read_digits());
}

static _Noreturn void fault(void)
{
    print("fault\n");
    end(1);
}

__attribute__((section(".vectors"), used)) static void (*const vectors[])(void) = {
    (void (*)(void))(uintptr_t)stack_end, reset, fault, fault, fault, fault, fault,
};
