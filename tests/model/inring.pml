/* A model of how received messages get from the transport step to the handler steps, for spin:
 * blocks (src/msg/block.c), works and turns (src/msg/dispatch.c), the two rings between the threads
 * (src/base/ring.c) and the stalling of a stream (src/msg/stall.c). tests/model/run checks it in
 * every interleaving; docs/messaging.md says what for.
 *
 * One stream's messages come one after the other. Each access of a shared word is a step of its own,
 * but for one merger: a ring's slot whose turn it is stays so until its number is claimed, so
 * looking at the turn and claiming the number are one step, and storing or reading the item is the
 * next. Steps take effect in one order that all see. Waking a handler is not modelled (it runs when
 * there is something in the ring: the crew's affair); waking the transport step is.
 *
 * Given by the runner: MESSAGES, HANDLERS, WORKS (a power of two, as each ring has as many places),
 * MANY (blocks that works may hold), ORDERED (true for an ordered message, from its number m), and
 * BROKEN (0, or the mistake to plant). */

#ifndef BROKEN
#define BROKEN 0
#endif
#define BROKEN_SHARE_LATE 1   /* the block is shared when the work was handed on already */
#define BROKEN_LOOK_FIRST 2   /* who stalls looks for free works before it says that it waits */
#define BROKEN_WAKE_FIRST 3   /* who frees a work looks for waiters before it has done so */
#define BROKEN_HELD_LATE 4    /* the stream leaves a block and counts it as held afterwards */
#define BROKEN_TURN_UNLOCKED 5 /* the turn ends after the lock was given back */
#define BROKEN_REUSE_SHARED 6 /* a block is filled anew though a work reads it */

#define BLOCK_MESSAGES 2
/* What may be under way at once: held ones, the stream's own, and one that each handler has taken
 * off the count and not given back yet. More would be memory without bound. */
#define BLOCKS (MANY + 1 + HANDLERS)
#define NONE 255

/* The rings: free works, and works that are ready. */
#define FREE 0
#define READY 1
byte pushed[2], popped[2];
byte turns[2 * WORKS];
byte items[2 * WORKS];

/* Works. */
byte work_block[WORKS], work_place[WORKS], work_message[WORKS];
bool work_is_turn[WORKS];

/* Blocks. A pooled one is anybody's. */
byte refs[BLOCKS];
bool is_held[BLOCKS];
bool pooled[BLOCKS];
byte bytes[BLOCKS * BLOCK_MESSAGES];
byte held;

/* The connection's ordered works, under its lock. */
bool locked;
byte ordered[MESSAGES];
byte ordered_first, ordered_last;
bool ordered_running;

/* Between those who wait for works and those who free them. */
bool works_wanted, woken;

/* The ghost. */
bool handled[MESSAGES];
byte handled_count, last_ordered = NONE;
bool ordered_busy, transport_done;

#define LOCK atomic { !locked -> locked = true }
#define UNLOCK locked = false

/* put_back in dispatch.c: again and again until there is a place. */
inline push(ring, what)
{
    atomic {
        turns[ring * WORKS + pushed[ring] % WORKS] == pushed[ring] ->
            at = pushed[ring];
            pushed[ring]++
    };
    d_step {
        items[ring * WORKS + at % WORKS] = what;
        turns[ring * WORKS + at % WORKS] = at + 1;
        at = 0
    }
}

/* Sets into, or leaves it NONE. */
inline pop(ring, into)
{
    atomic {
        into = NONE;
        if
        :: turns[ring * WORKS + popped[ring] % WORKS] == popped[ring] + 1 ->
            at = popped[ring];
            popped[ring]++;
            into = 0
        :: else
        fi
    };
    d_step {
        if
        :: into != NONE ->
            into = items[ring * WORKS + at % WORKS];
            turns[ring * WORKS + at % WORKS] = at + WORKS
        :: else
        fi;
        at = 0
    }
}

/* sh_block_release */
inline block_release(block)
{
    d_step {
        assert(!pooled[block]);
        assert(refs[block] > 0);
        refs[block]--;
        is_last = (refs[block] == 0)
    };
    if
    :: is_last ->
        if
        :: is_held[block] -> held--
        :: else
        fi;
        d_step { is_held[block] = false; pooled[block] = true; is_last = false }
    :: else
    fi
}

/* work_free, of a work whose block was released */
inline work_free(work)
{
    if
    :: BROKEN == BROKEN_WAKE_FIRST -> wakes = works_wanted
    :: else
    fi;
    push(FREE, work);
    if
    :: BROKEN != BROKEN_WAKE_FIRST -> wakes = works_wanted
    :: else
    fi;
    if
    :: wakes -> d_step { woken = true; wakes = false }
    :: else
    fi
}

/* --- The transport step ------------------------------------------------------------------------ */

/* sh_block_leave */
inline block_leave()
{
    if
    :: BROKEN == BROKEN_HELD_LATE ->
        is_shared = (refs[block] > 1);
        block_release(block);
        if
        :: is_shared -> is_held[block] = true; held++
        :: else
        fi
    :: else ->
        if
        :: refs[block] > 1 -> is_held[block] = true; held++
        :: else
        fi;
        block_release(block)
    fi;
    d_step { is_shared = false; block = NONE; fill = 0 }
}

/* block_ready in stream.c: room for a message, in the same block, in it from the start, or in
 * another one. */
inline block_ready()
{
    if
    :: block != NONE && fill < BLOCK_MESSAGES
    :: block != NONE && fill > 0 && (refs[block] == 1 || BROKEN == BROKEN_REUSE_SHARED) -> fill = 0
    :: block != NONE && fill > 0 -> block_leave()
    :: block == NONE
    fi;
    if
    :: block == NONE ->
        d_step {
            i = 0;
            do
            :: i < BLOCKS && !pooled[i] -> i++
            :: else -> break
            od;
            assert(i < BLOCKS); /* no more than this is ever under way */
            block = i;
            pooled[block] = false;
            refs[block] = 1;
            i = 0
        }
    :: else
    fi
}

/* sh_work_add. Sets is_added. */
inline work_add()
{
    work = NONE;
    if
    :: held < MANY -> pop(FREE, work)
    :: else
    fi;
    turn = NONE;
    if
    :: work != NONE && ORDERED(m) ->
        pop(FREE, turn);
        if
        :: turn == NONE -> work_free(work); work = NONE
        :: else
        fi
    :: else
    fi;
    is_added = (work != NONE);
    if
    :: is_added ->
        d_step {
            work_block[work] = block;
            work_place[work] = fill - 1;
            work_message[work] = m;
            work_is_turn[work] = false;
            ready = work
        };
        if
        :: BROKEN != BROKEN_SHARE_LATE -> refs[block]++
        :: else
        fi;
        if
        :: turn != NONE ->
            work_is_turn[turn] = true;
            LOCK;
            d_step {
                ordered[ordered_last] = work;
                ordered_last++;
                ready = (ordered_running -> NONE : turn);
                ordered_running = true
            };
            UNLOCK;
            if
            :: ready == NONE -> work_free(turn)
            :: else
            fi
        :: else
        fi;
        if
        :: ready != NONE -> push(READY, ready)
        :: else
        fi;
        if
        :: BROKEN == BROKEN_SHARE_LATE -> refs[block]++
        :: else
        fi
    :: else
    fi;
    d_step { work = 0; turn = 0; ready = 0 }
}

/* may_go_on in stall.c: sets is_free. */
inline look()
{
    i = popped[FREE];
    is_free = (pushed[FREE] - i > 1);
    is_free = is_free && held < MANY;
    i = 0
}

proctype transport()
{
    byte m, block = NONE, fill, work, turn, ready, at, i;
    bool is_added, is_free, is_last, is_shared, wakes;
    do
    :: m < MESSAGES ->
        block_ready();
        d_step { bytes[block * BLOCK_MESSAGES + fill] = m; fill++ };
        work_add();
        do
        :: is_added -> break
        :: else ->
            /* sh_streams_resume, now and whenever the step was woken */
            if
            :: BROKEN == BROKEN_LOOK_FIRST -> look(); works_wanted = true
            :: else -> works_wanted = true; look()
            fi;
            if
            :: is_free -> work_add()
            :: else -> atomic { woken -> woken = false }
            fi
        od;
        works_wanted = false;
        m++
    :: else -> break
    od;
    if
    :: block != NONE -> block_leave()
    :: else
    fi;
    transport_done = true
}

/* --- The handler steps ------------------------------------------------------------------------- */

/* work_run */
inline work_run(work)
{
    d_step {
        if
        :: ORDERED(work_message[work]) ->
            assert(!ordered_busy); /* one at a time, */
            assert(last_ordered == NONE || last_ordered < work_message[work]); /* in order */
            last_ordered = work_message[work];
            ordered_busy = true
        :: else
        fi
    };
    d_step {
        assert(!pooled[work_block[work]]);
        assert(bytes[work_block[work] * BLOCK_MESSAGES + work_place[work]] == work_message[work]);
        assert(!handled[work_message[work]]);
        handled[work_message[work]] = true;
        handled_count++;
        if
        :: ORDERED(work_message[work]) -> ordered_busy = false
        :: else
        fi;
        block = work_block[work]
    };
    block_release(block);
    work_free(work)
}

proctype handler()
{
    byte got, block, work, at;
    bool is_last, wakes;
end:
    do
    :: turns[READY * WORKS + popped[READY] % WORKS] == popped[READY] + 1 ->
        pop(READY, got);
        if
        :: got == NONE
        :: got != NONE && !work_is_turn[got] -> work_run(got)
        :: got != NONE && work_is_turn[got] ->
            /* turn_run */
            LOCK;
            d_step {
                if
                :: ordered_first < ordered_last ->
                    work = ordered[ordered_first];
                    ordered_first++
                :: else ->
                    work = NONE;
                    if
                    :: BROKEN != BROKEN_TURN_UNLOCKED -> ordered_running = false
                    :: else
                    fi
                fi
            };
            UNLOCK;
            if
            :: work == NONE ->
                if
                :: BROKEN == BROKEN_TURN_UNLOCKED -> ordered_running = false
                :: else
                fi;
                work_free(got)
            :: else -> work_run(work); push(READY, got)
            fi
        fi;
        d_step { got = 0; block = 0; work = 0 }
    od
}

init
{
    byte i;
    d_step {
        for (i : 0 .. WORKS - 1) {
            items[FREE * WORKS + i] = i;
            turns[FREE * WORKS + i] = i + 1;
            turns[READY * WORKS + i] = i
        }
        pushed[FREE] = WORKS;
        for (i : 0 .. BLOCKS - 1) {
            pooled[i] = true
        }
        i = 0
    };
    atomic {
        run transport();
        for (i : 0 .. HANDLERS - 1) {
            run handler()
        }
        i = 0
    };
    timeout; /* nobody can go on: then all is done, and all is back */
    assert(transport_done);
    assert(handled_count == MESSAGES);
    assert(held == 0);
    assert(pushed[FREE] - popped[FREE] == WORKS);
    assert(pushed[READY] == popped[READY]);
    assert(!ordered_running);
    for (i : 0 .. BLOCKS - 1) {
        assert(pooled[i] && refs[i] == 0)
    }
}
