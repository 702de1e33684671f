#include <stdlib.h>

#include "store/leases_int.h"

#define NO_PIECE UINT32_MAX

static uint32_t piece_of(uint32_t index)
{
    return (index - 1) >> SH_LEASE_SLOTS_BITS;
}

static uint64_t piece_bytes(const struct sh_lease_slots *slots)
{
    return (uint64_t)slots->slot_bytes << SH_LEASE_SLOTS_BITS;
}

static uint32_t pieces_max(uint32_t slots_max)
{
    return (slots_max + SH_LEASE_SLOTS_OF_PIECE - 1) >> SH_LEASE_SLOTS_BITS;
}

enum shoal_err sh_lease_slots_init(struct sh_lease_slots *slots, uint32_t slot_bytes,
                                   uint32_t slots_max)
{
    SH_ASSERT(slot_bytes % 4 == 0);
    SH_ASSERT(slots_max > 0);
    struct sh_lease_slots made = {
        .slot_bytes = slot_bytes, .slots_max = slots_max, .spare = NO_PIECE};
    made.pieces = calloc(pieces_max(slots_max), sizeof *made.pieces);
    if (!made.pieces)
        return SHOAL_ENOMEM;
    enum shoal_err err = sh_vm_reserve(pieces_max(slots_max) * piece_bytes(&made), &made.vm);
    if (err) {
        free(made.pieces);
        return err;
    }
    *slots = made;
    return SHOAL_OK;
}

void sh_lease_slots_destroy(struct sh_lease_slots *slots)
{
    sh_vm_release(&slots->vm);
    free(slots->pieces);
    slots->pieces = NULL;
}

uint32_t sh_lease_slots_take(struct sh_lease_slots *slots)
{
    SH_ASSERT(slots->used < slots->slots_max);
    uint32_t at = slots->room_from;
    while (slots->pieces[at].used == SH_LEASE_SLOTS_OF_PIECE)
        at++;
    slots->room_from = at;
    struct sh_lease_slots_piece *piece = &slots->pieces[at];
    if (slots->spare == at)
        slots->spare = NO_PIECE;
    else if (piece->used == 0)
        slots->resident++;
    uint32_t index = piece->free;
    if (index != 0)
        piece->free = *(uint32_t *)sh_lease_slots_at(slots, index);
    else
        index = (at << SH_LEASE_SLOTS_BITS) + piece->fresh++ + 1;
    piece->used++;
    slots->used++;
    SH_ASSERT(index <= pieces_max(slots->slots_max) << SH_LEASE_SLOTS_BITS);
    return index;
}

void sh_lease_slots_give(struct sh_lease_slots *slots, uint32_t index)
{
    uint32_t at = piece_of(index);
    struct sh_lease_slots_piece *piece = &slots->pieces[at];
    SH_ASSERT(piece->used > 0);
    *(uint32_t *)sh_lease_slots_at(slots, index) = piece->free;
    piece->free = index;
    piece->used--;
    slots->used--;
    if (at < slots->room_from)
        slots->room_from = at;
    if (piece->used > 0)
        return;
    piece->free = 0;
    piece->fresh = 0;
    /* One empty piece stays, or a single lock that comes and goes would cost a page fault and a
     * system call each time. */
    if (slots->spare == NO_PIECE) {
        slots->spare = at;
        return;
    }
    /* Where the kernel keeps the pages (locked memory) nothing is lost but memory. */
    (void)sh_vm_discard(&slots->vm, at * piece_bytes(slots), piece_bytes(slots));
    slots->resident--;
}

uint64_t sh_lease_slots_bytes(const struct sh_lease_slots *slots)
{
    return slots->resident * piece_bytes(slots);
}
