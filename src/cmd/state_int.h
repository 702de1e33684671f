/* The folder in which `shoal up` notes its cluster, and that the other commands find it by.
 *
 *   DIR/cluster.json   the note: each node's role, process (ID and start time), ID and address
 *   DIR/NAME.log       what a node said; NAME is superpeer1, peer1, peer2, ...
 *   DIR/NAME.ready     what it wrote once it served
 *   DIR/NAME.data/     a superpeer's registry; a peer's dumps, which stay when it ends
 *
 * The note is written anew after each process that was started, so that `shoal down` finds what an
 * `up` that was killed has left. `up` and `down` hold a lock on the folder. */
#ifndef SH_CMD_STATE_INT_H
#define SH_CMD_STATE_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "shoal/err.h"
#include "shoal/types.h"

#define SH_STATE_PATH_MAX 1024
#define SH_STATE_TEXT_MAX 4096
#define SH_STATE_NODES_MAX 320

struct sh_state_node {
    char name[24];
    bool superpeer;
    pid_t pid;
    uint64_t started; /* see sh_process_started */
    shoal_nid nid;    /* NONE until it serves */
    char address[64]; /* "" until it serves */
};

struct sh_state {
    char cluster[64];
    char secret_file[4096];
    char tls[4]; /* on, or off or empty */
    char tls_cert_file[4096], tls_key_file[4096], tls_ca_file[4096];
    bool made_folder; /* to be removed by `down` */
    bool complete;    /* all nodes served */
    size_t count;
    struct sh_state_node *nodes; /* room for SH_STATE_NODES_MAX; owned */
};

/* An empty one. ENOMEM. Freed by sh_state_free, which also takes one that is all zero. */
SHOAL_NODISCARD enum shoal_err sh_state_create(struct sh_state *state_out);
void sh_state_free(struct sh_state *state);

/* The folder's absolute path: dir if not NULL, else $SHOAL_STATE_DIR, else $XDG_RUNTIME_DIR/shoal,
 * else /tmp/shoal-UID. The last two are used only where they are ours alone (EIO). It need not
 * exist. detail has SH_STATE_TEXT_MAX bytes, here and below. */
SHOAL_NODISCARD enum shoal_err sh_state_folder(const char *dir, char folder_out[SH_STATE_PATH_MAX],
                                               char *detail);

/* Makes the folder (mode 0700) if it is not there; *made_out says whether it did. EIO, ENOSPC. */
SHOAL_NODISCARD enum shoal_err sh_state_make(const char *folder, bool *made_out, char *detail);

/* Locks the folder until the descriptor is closed. EBUSY: another up or down is at work. EIO. */
SHOAL_NODISCARD enum shoal_err sh_state_lock(const char *folder, int *fd_out, char *detail);

/* Reads the note. ENONAME: there is none. ECORRUPT, EIO, ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_state_read(const char *folder, struct sh_state *state_out,
                                             char *detail);
/* Replaces the note. EIO, ENOSPC. */
SHOAL_NODISCARD enum shoal_err sh_state_write(const char *folder, const struct sh_state *state,
                                              char *detail);

/* "FOLDER/NAME.SUFFIX", or "FOLDER/NAME" when the suffix is "". */
void sh_state_path(const char *folder, const char *name, const char *suffix,
                   char path_out[SH_STATE_PATH_MAX + 64]);

/* The superpeers' addresses and those of some peers, as far as there is room for them, separated by
 * commas. */
void sh_state_addresses(const struct sh_state *state, size_t peers, char *text_out, size_t room);

/* How many of its processes run. */
size_t sh_state_running(const struct sh_state *state);

/* Stops all of its processes in order, peers first: asks, and after deadline_ms ends those that
 * still run, of which it returns the number. */
size_t sh_state_stop(const struct sh_state *state, uint64_t deadline_ms);

/* Removes the nodes' files but for peers' dumps, the note, and the folder if we made it and it is
 * empty. */
void sh_state_clear(const char *folder, const struct sh_state *state);

#endif
