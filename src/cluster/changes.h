/* The difference between two views of one registry, as it travels to a member that has the older.
 *
 * Encoded (little-endian, no padding):
 *   0   u64  epoch of the view that it leads to
 *   8   u64  epoch of the view that it is applied to
 *   16  u64  digest of the view that it leads to
 *   24  u16  number of superpeers (their IDs are 1 to this)
 *   26  u16  number of nodes
 *   28  u16  number of nodes that are gone from the view
 *   30  nodes that are new or another than before, in ascending order of ID, as in a view; u16 each
 *       the IDs of those that are gone, ascending
 *
 * A registry that was begun anew, or another superpeer's, may have had the same epoch with another
 * view. The digest tells: a member whose result has another one asks for the whole view.
 *
 * Arithmetic: a join among 1000 nodes sends 100 bytes to each, where a view has 60 KB.
 */
#ifndef SH_CLUSTER_CHANGES_H
#define SH_CLUSTER_CHANGES_H

#include "cluster/view.h"

/* Changes of more nodes than that are not sent: the whole view is. */
#define SH_CHANGES_MAX 256

/* Says which view it is, whatever its epoch: equal ones have the same, others another one. */
uint64_t sh_view_digest(const struct sh_view *view);

/* Encodes exactly sh_changes_size bytes. nids are those of the nodes that may have changed since
 * the epoch base, at most SH_CHANGES_MAX, in ascending order; those that the view has not are gone
 * from it. digest is the view's. */
size_t sh_changes_size(const struct sh_view *view, const shoal_nid *nids, size_t count);
void sh_changes_put(struct sh_writer *w, const struct sh_view *view, uint64_t base, uint64_t digest,
                    const shoal_nid *nids, size_t count);

/* Decodes changes and applies them to a view, which stays; the result replaces *view_out. EPROTO
 * (malformed), EDIFFERS (they are not of that view), ENOMEM: *view_out is as it was. The reader
 * stands behind them unless EPROTO. */
SHOAL_NODISCARD enum shoal_err sh_changes_get(struct sh_reader *r, const struct sh_view *view,
                                              struct sh_view *view_out);

#endif
