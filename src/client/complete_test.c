/* What a call ends with when an attempt of it may have been done. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client/client_int.h"

static void on_done(struct shoal_call *call)
{
    *(enum shoal_err *)call->arg = call->err;
}

static enum shoal_err complete(bool is_unclear, enum shoal_err err)
{
    static struct shoal store;
    enum shoal_err got = SHOAL_EINTERNAL;
    struct shoal_call call = {.done = on_done, .arg = &got};
    struct sh_call_state *state = sh_call_state_of(&call);
    state->store = &store;
    state->is_unclear = is_unclear;
    atomic_store(&store.in_flight, 1);
    sh_call_complete(state, err);
    return got;
}

/* No refusal of a later attempt may say that the call was not done. */
static void refused_after_lost(void **state)
{
    (void)state;
    static const enum shoal_err errors[] = {
#define X(name, number, text, hint) SHOAL_##name,
#include "shoal/err.def"
#undef X
    };
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        assert_int_equal(complete(false, errors[i]), errors[i]);
        if (sh_call_may_retry(SH_CALL_PUT, errors[i]))
            assert_int_equal(complete(true, errors[i]), SHOAL_ECONNLOST);
    }
    assert_int_equal(complete(true, SHOAL_EFENCED), SHOAL_ECONNLOST);
    assert_int_equal(complete(true, SHOAL_EFAILED), SHOAL_ECONNLOST);
    assert_int_equal(complete(true, SHOAL_OK), SHOAL_OK);
    assert_int_equal(complete(true, SHOAL_ENOCHUNK), SHOAL_ENOCHUNK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(refused_after_lost)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
