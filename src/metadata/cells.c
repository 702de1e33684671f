/* Cells and their garbage. */
#include "metadata/cells_int.h"

#include <stdlib.h>

#include "base/assert.h"
#include "metadata/map_int.h"
#include "metadata/metadata_int.h"

void *sh_cells_malloc(struct sh_cells *cells, size_t bytes)
{
    if (cells->failures_due == 1)
        return NULL;
    cells->failures_due -= cells->failures_due > 1;
    return malloc(bytes);
}

void *sh_cells_take(struct sh_cells *cells, size_t bytes, enum sh_cell_kind kind)
{
    SH_ASSERT(bytes >= sizeof(struct sh_cell) && bytes <= SH_CELL_BYTES);
    struct sh_cell *cell = sh_cells_malloc(cells, bytes);
    if (!cell) {
        SH_ASSERT(cells->spares); /* sh_cells_fill was called */
        cell = cells->spares;
        cells->spares = cell->next;
        cells->spare_count--;
    }
    *cell = (struct sh_cell){.refs = 1, .kind = (uint8_t)kind};
    cells->count++;
    return cell;
}

void sh_cells_drop(struct sh_cells *cells, struct sh_cell *cell)
{
    if (!cell)
        return;
    SH_ASSERT(cell->refs);
    if (--cell->refs)
        return;
    cell->next = cells->garbage;
    cells->garbage = cell;
    cells->garbage_count++;
}

enum shoal_err sh_cells_fill(struct sh_cells *cells, size_t count)
{
    while (cells->spare_count < count) {
        struct sh_cell *cell = sh_cells_malloc(cells, SH_CELL_BYTES);
        if (!cell)
            return SHOAL_ENOMEM;
        cell->next = cells->spares;
        cells->spares = cell;
        cells->spare_count++;
    }
    return SHOAL_OK;
}

void sh_cells_trim(struct sh_cells *cells, size_t count, size_t most)
{
    for (; cells->spare_count > count && most; most--) {
        struct sh_cell *cell = cells->spares;
        cells->spares = cell->next;
        cells->spare_count--;
        free(cell);
    }
}

bool sh_cells_sweep(struct sh_cells *cells, size_t most)
{
    for (; cells->garbage && most; most--) {
        struct sh_cell *cell = cells->garbage;
        SH_ASSERT(!cell->refs && cells->garbage_count && cells->count);
        cells->garbage = cell->next;
        cells->garbage_count--;
        cells->count--;
        if (cell->kind == SH_CELL_INNER)
            sh_map_children_drop(cells, cell);
        else if (cell->kind == SH_CELL_MEMBERS)
            sh_metadata_members_drop(cells, cell);
        free(cell);
    }
    return cells->garbage;
}
