/* A model of the outgoing ring (src/msg/outring.c) and of how src/msg/out.c and src/msg/conn.c use
 * it, for spin. tests/model/run checks it in every interleaving; docs/messaging.md says what for.
 *
 * Each access of a shared word is a step of its own, outside the lock and under it; what only the
 * holder of the lock can see is done in one. Steps take effect in one order that all see: what the
 * memory orders of the code must forbid beyond that is the thread sanitizer's to find.
 *
 * A byte in the model stands for a piece of a message. The ghost is a list of what was reserved, in
 * order, which the code does not have: each piece that the consumer sends must be the list's next.
 *
 * Given by the runner: WRITERS, MESSAGES (of each writer), DROPS, LENGTH (of a message, from the
 * writer's number w and the message's m), ANSWERS (1: messages of the last writer must fit), SLOT_MOD,
 * and BROKEN (0, or the mistake to plant). */

#ifndef BROKEN
#define BROKEN 0
#endif
#define BROKEN_COMPLETE_FIRST 1 /* a writer says complete before it has written */
#define BROKEN_GROW_NOT_QUIET 2 /* the memory changes hands while somebody writes */
#define BROKEN_DROP_NOT_QUIET 3 /* a lost connection gives the memory back at once */
#define BROKEN_START_STORES 4   /* starting again does not notice a new reservation */
#define BROKEN_NO_RETIRED 5     /* growing gives back what the consumer is sending */
#define BROKEN_SLOT_LIMIT 6     /* reserving does not look at how many slots are in use */

#define SLOTS 2 /* SH_OUTRING_SLOTS */
#ifndef SLOT_MOD
#define SLOT_MOD 32 /* 2 to SH_OUTRING_SLOT_BITS */
#endif
#define POSITION_MOD 16 /* 2 to SH_OUTRING_POSITION_BITS */
#define USUAL 4         /* ring_bytes */
#define ROOM_MAX 8
#define MAPS (2 * MESSAGES_ALL + DROPS + 1)
#define BYTES_MAX (BYTES_ALL)
#define NONE 255

/* The word `reserved`, and `done`. */
bool r_closed = true;
byte r_generation, r_slot, r_position;
byte d_slot, d_position;
/* Memory: each mapping has a number that is never used again. */
byte base = NONE, room, retired = NONE, maps;
bool mapped[MAPS];
byte bytes[MAPS * ROOM_MAX];
byte slots[MAPS * SLOTS];
/* Under the lock. */
bool locked;
byte ready;
bool sending, draining;
/* The connection's. */
byte conn_generation;
/* The ghost. */
byte reserved_bytes[BYTES_MAX];
byte ghost_head, ghost_tail, messages;
byte writers_done;
/* What the holder of the lock keeps in registers. */
byte o_back, o_first, o_used, o_room, o_i, o_position, o_slot;
bool o_quiet, o_drained, o_again;

#define LOCK atomic { !locked -> locked = true }
#define UNLOCK                                                                                     \
    d_step { o_back = 0; o_first = 0; o_used = 0; o_room = 0; o_i = 0; o_position = 0; o_slot = 0; \
             o_quiet = false; o_drained = false; o_again = false; locked = false }

#define MINUS(a, b, mod) (((a) + (mod) - (b)) % (mod))

inline collect()
{
    if
    :: base == NONE
    :: else ->
        o_back = d_slot;
        o_first = d_slot;
        do
        :: d_step {
            /* Set slots are the owner's until it has given them back: read and cleared in one. */
            slots[base * SLOTS + o_back % SLOTS] != 0 &&
                    MINUS(o_back, o_first, SLOT_MOD) < SLOTS ->
                ready = (ready + slots[base * SLOTS + o_back % SLOTS]) % POSITION_MOD;
                slots[base * SLOTS + o_back % SLOTS] = 0;
                o_back = (o_back + 1) % SLOT_MOD
            }
        :: else -> break
        od;
        d_slot = o_back
    fi
}

inline quiet()
{
    o_quiet = (r_slot == d_slot)
}

inline unmap_one(map)
{
    if
    :: map != NONE ->
        mapped[map] = false;
        for (o_i : 0 .. ROOM_MAX - 1) {
            bytes[map * ROOM_MAX + o_i] = 0
        }
        for (o_i : 0 .. SLOTS - 1) {
            slots[map * SLOTS + o_i] = 0
        }
    :: else
    fi;
    o_i = 0
}

inline unmap_all()
{
    d_step {
        unmap_one(base);
        unmap_one(retired);
        base = NONE;
        retired = NONE;
        room = 0
    };
    d_step {
        o_position = r_position;
        o_slot = r_slot;
        ready = r_position;
        ghost_head = ghost_tail /* who calls this for another reason than a loss asserts that it was */
    };
    d_step { d_slot = o_slot; d_position = o_position }
}

inline drained()
{
    o_drained = true;
    if
    :: draining ->
        collect();
        quiet();
        if
        :: o_quiet || BROKEN == BROKEN_DROP_NOT_QUIET ->
            draining = false;
            unmap_all()
        :: else -> o_drained = false
        fi
    :: else
    fi
}

inline grow(length)
{
    d_step {
        o_used = MINUS(r_position, d_position, POSITION_MOD);
        assert(o_used + length <= ROOM_MAX);
        o_room = (o_used + length > USUAL -> ROOM_MAX : USUAL);
        if
        :: o_room > room ->
            assert(maps < MAPS);
            mapped[maps] = true;
            for (o_i : 0 .. ROOM_MAX - 1) {
                if
                :: o_i < o_used ->
                    bytes[maps * ROOM_MAX + (d_position + o_i) % o_room] =
                        bytes[base * ROOM_MAX + (d_position + o_i) % room]
                :: else
                fi
            }
            if
            :: sending && retired == NONE && BROKEN != BROKEN_NO_RETIRED -> retired = base
            :: else -> unmap_one(base)
            fi;
            base = maps;
            room = o_room;
            maps++
        :: else
        fi
    }
}

/* sh_outring_reserve. Sets result. */
mtype = { AGAIN, OK, FULL, CLOSED };
inline reserve(generation, length, limit)
{
    result = AGAIN;
    d_step { w_closed = r_closed; w_generation = r_generation; w_slot = r_slot; w_position = r_position };
    do
    :: result != AGAIN -> break
    :: else ->
        if
        :: w_closed || w_generation != generation -> result = CLOSED
        :: else ->
            d_step {
                w_used = MINUS(w_position, d_position, POSITION_MOD);
                w_slots = MINUS(w_slot, d_slot, SLOT_MOD)
            };
            d_step {
                if
                :: w_used + length > limit ||
                        (w_slots >= SLOTS && BROKEN != BROKEN_SLOT_LIMIT) -> result = FULL
                :: else ->
                    if
                    :: w_closed == r_closed && w_generation == r_generation && w_slot == r_slot &&
                            w_position == r_position ->
                        r_slot = (r_slot + 1) % SLOT_MOD;
                        r_position = (r_position + length) % POSITION_MOD;
                        result = OK;
                        messages++;
                        w_message = messages;
                        for (w_i : 0 .. length - 1) {
                            reserved_bytes[ghost_tail + w_i] = w_message
                        }
                        ghost_tail = ghost_tail + length;
                        w_i = 0
                    :: else ->
                        w_closed = r_closed;
                        w_generation = r_generation;
                        w_slot = r_slot;
                        w_position = r_position
                    fi
                fi;
                w_used = 0;
                w_slots = 0
            }
        fi
    od
}

/* begin_slowly in out.c, one try: sets result (AGAIN: another try; FULL: the caller is told EAGAIN). */
inline reserve_slowly(length, must_fit)
{
    LOCK;
    generation = conn_generation;
    result = AGAIN;
    drained();
    if
    :: o_drained ->
        collect();
        o_used = MINUS(r_position, d_position, POSITION_MOD);
        if
        :: !must_fit && o_used > 0 && o_used + length > USUAL -> result = FULL
        :: else ->
            o_again = false;
            if
            :: o_used + length > room ->
                r_closed = true;
                collect();
                quiet();
                if
                :: o_quiet || BROKEN == BROKEN_GROW_NOT_QUIET -> grow(length)
                :: else -> o_again = true
                fi
            :: else
            fi;
            if
            :: !o_again ->
                if
                :: r_closed -> d_step { r_closed = false; r_generation = generation }
                :: else
                fi;
                reserve(generation, length, room);
                if
                :: result == OK
                :: else -> result = AGAIN
                fi
            :: else
            fi
        fi
    :: else
    fi;
    if
    :: result == OK -> d_step { w_base = base; w_room = room }
    :: else
    fi;
    UNLOCK
}

/* Writes the message piece by piece, and hands it over. */
inline write(length)
{
    if
    :: BROKEN == BROKEN_COMPLETE_FIRST -> slots[w_base * SLOTS + w_slot % SLOTS] = length
    :: else
    fi;
    do
    :: w_i < length ->
        d_step {
            assert(mapped[w_base]);  /* nobody writes into memory that was given back, */
            assert(w_base == base);  /* nor into what was retired */
            bytes[w_base * ROOM_MAX + (w_position + w_i) % w_room] = w_message;
            w_i++
        }
    :: else -> break
    od;
    skip; /* a loop may not end in a d_step */
    d_step {
        assert(mapped[w_base] && w_base == base);
        if
        :: BROKEN != BROKEN_COMPLETE_FIRST ->
            assert(slots[w_base * SLOTS + w_slot % SLOTS] == 0);
            slots[w_base * SLOTS + w_slot % SLOTS] = length
        :: else
        fi;
        w_i = 0; w_base = 0; w_room = 0; w_slot = 0; w_position = 0; w_generation = 0; w_message = 0;
        generation = 0;
        w_closed = false; result = AGAIN
    }
}

proctype writer(byte w)
{
    byte m, generation, w_generation, w_slot, w_position, w_used, w_slots, w_message, w_i;
    byte w_base, w_room;
    bool w_closed;
    mtype result;
    do
    :: m < MESSAGES(w) ->
        generation = conn_generation;
        reserve(generation, LENGTH(w, m), USUAL);
        if
        :: result == OK -> w_base = base; w_room = room
        :: else ->
            do
            :: result == OK -> break
            :: else -> reserve_slowly(LENGTH(w, m), (ANSWERS && w == WRITERS - 1))
            od
        fi;
        write(LENGTH(w, m));
        m++
    :: else -> break
    od;
    writers_done++
}

/* sh_outring_sent, with start_again. */
inline sent(count)
{
    sending = false;
    d_step { unmap_one(retired); retired = NONE };
    d_position = (d_position + count) % POSITION_MOD;
    if
    :: d_position == ready ->
        d_step { o_slot = r_slot; o_position = r_position };
        if
        :: o_position == ready && o_slot == d_slot ->
            d_position = 0;
            d_step {
                if
                :: r_slot == o_slot && r_position == o_position ||
                        BROKEN == BROKEN_START_STORES ->
                    r_position = 0;
                    ready = 0;
                    o_again = true
                :: else
                fi
            };
            if
            :: !o_again -> d_position = ready
            :: o_again && room > USUAL ->
                r_closed = true;
                quiet();
                if
                :: o_quiet ->
                    assert(ghost_head == ghost_tail); /* nothing is lost with the memory */
                    unmap_all()
                :: else
                fi
            :: else
            fi
        :: else
        fi
    :: else
    fi
}

proctype consumer()
{
    byte drops, size, count, i, from, at, at_room;
    bool last;
    do
    :: drops < DROPS ->
        /* sh_conn_lost */
        LOCK;
        assert(!sending);
        r_closed = true;
        draining = true;
        drained();
        conn_generation++;
        drops++;
        UNLOCK
    :: true ->
        last = (writers_done == WRITERS);
        LOCK;
        size = 0;
        drained();
        if
        :: o_drained ->
            collect();
            d_step {
                from = d_position;
                size = MINUS(ready, d_position, POSITION_MOD);
                at = base;
                at_room = room;
                sending = (size > 0)
            }
        :: else
        fi;
        UNLOCK;
        if
        :: size > 0 ->
            /* The wire takes all of it, or only the first piece. */
            if
            :: count = size
            :: size > 1 -> count = 1
            fi;
            do
            :: i < count ->
                d_step {
                    assert(mapped[at]);
                    assert(ghost_head < ghost_tail);
                    assert(bytes[at * ROOM_MAX + (from + i) % at_room] ==
                           reserved_bytes[ghost_head]);
                    ghost_head++;
                    i++
                }
            :: else -> break
            od;
            LOCK;
            sent(count);
            UNLOCK
        :: size == 0 && last ->
            assert(ghost_head == ghost_tail && !draining);
            break
        :: else
        fi;
        d_step { size = 0; count = 0; i = 0; from = 0; at = 0; at_room = 0; last = false }
    od
}

init
{
    byte w;
    atomic {
        for (w : 0 .. WRITERS - 1) {
            run writer(w)
        }
        run consumer()
    }
}
