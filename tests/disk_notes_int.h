/* What a server's disk has for sure, for checkers that do not believe servers: before each step of its
 * journal, which writes all that was said until then or nothing of it, the test notes what the server
 * would have after a crash then; when that is synced, the note is what the disk has. */
#ifndef TESTS_DISK_NOTES_INT_H
#define TESTS_DISK_NOTES_INT_H

#include <stdlib.h>

#include "journal/journal.h"

/* A test's notes begin with this, and are from malloc. */
struct disk_note {
    struct disk_note *next; /* the one after it */
    sh_lsn lsn;
};

struct disk_notes {
    struct disk_note *now; /* NULL: the disk is empty */
    struct disk_note *coming, **coming_end;
    sh_lsn noted; /* the last LSN that was noted */
};

/* The journal was opened: what was read (taken) is what the disk has. */
static inline void disk_notes_load(struct disk_notes *notes, struct disk_note *note)
{
    free(notes->now);
    *notes = (struct disk_notes){.now = note};
    notes->coming_end = &notes->coming;
}

/* Whether anything was said since the last note. */
static inline bool disk_notes_wants(const struct disk_notes *notes, sh_lsn last)
{
    return last != notes->noted;
}

/* Adds a note (taken) of what is there once that is synced. */
static inline void disk_notes_add(struct disk_notes *notes, struct disk_note *note, sh_lsn last)
{
    note->next = NULL;
    note->lsn = notes->noted = last;
    *notes->coming_end = note;
    notes->coming_end = &note->next;
}

/* After each step of the journal. */
static inline void disk_notes_sync(struct disk_notes *notes, sh_lsn synced)
{
    while (notes->coming && notes->coming->lsn <= synced) {
        free(notes->now);
        notes->now = notes->coming;
        notes->coming = notes->now->next;
    }
    if (!notes->coming)
        notes->coming_end = &notes->coming;
}

/* The process ends: what was not synced may be lost. */
static inline void disk_notes_crash(struct disk_notes *notes)
{
    while (notes->coming) {
        struct disk_note *note = notes->coming;
        notes->coming = note->next;
        free(note);
    }
}

/* The disk is emptied, or the test is over. */
static inline void disk_notes_clear(struct disk_notes *notes)
{
    disk_notes_crash(notes);
    free(notes->now);
    notes->now = NULL;
}

#endif
