/* Assertions: an error says the world misbehaved; an assertion says we did.
 *
 * SH_ASSERT is live in every build. SH_VERIFY is for costly checks: live in debug and simulation
 * builds only (SH_VERIFY_ON). Never assert on bytes from a wire or a disk. */
#ifndef SH_BASE_ASSERT_H
#define SH_BASE_ASSERT_H

/* Prints the condition and its place to stderr and aborts. */
_Noreturn void sh_assert_fail(const char *condition, const char *file, int line);

#define SH_ASSERT(condition)                                                                       \
    (__builtin_expect(!(condition), 0) ? sh_assert_fail(#condition, __FILE__, __LINE__) : (void)0)

#ifdef SH_VERIFY_ON
#define SH_VERIFY(condition) SH_ASSERT(condition)
#else
#define SH_VERIFY(condition) ((void)sizeof(condition))
#endif

#endif
