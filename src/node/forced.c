#include "node/forced.h"

#include <stdio.h>
#include <sys/stat.h>

#include "env/env.h"
#include "superpeer/superpeer.h"

#define DETAIL_BYTES 256

static bool is_folder(const char *path)
{
    struct stat found;
    return stat(path, &found) == 0 && S_ISDIR(found.st_mode);
}

enum shoal_err sh_node_force(const char *data_dir, const char *cluster, shoal_nid *nid_out,
                             char *detail)
{
    struct sh_env env = {.clock = sh_real_clock(), .random = sh_real_random()};
    uint16_t index;
    *detail = '\0';
    if (!is_folder(data_dir)) { /* a disk would make it */
        snprintf(detail, DETAIL_BYTES, "there is no folder %.200s", data_dir);
        return SHOAL_ENONAME;
    }
    enum shoal_err err = sh_real_disk_create(data_dir, false, &env.disk);
    if (err)
        return err;
    err = sh_real_disk_take(env.disk);
    if (err == SHOAL_EBUSY)
        snprintf(detail, DETAIL_BYTES, "a node runs on %.200s: stop it first", data_dir);
    if (!err) {
        err = sh_superpeer_force(&env, cluster, &index);
        if (err == SHOAL_ENONAME)
            snprintf(detail, DETAIL_BYTES, "%.200s holds no superpeer that took part in a registry",
                     data_dir);
        else if (err == SHOAL_ENONODE)
            snprintf(detail, DETAIL_BYTES,
                     "the superpeer of %.120s has never taken part in the registry that it holds: "
                     "force another survivor",
                     data_dir);
        else if (err == SHOAL_ECLUSTER)
            snprintf(detail, DETAIL_BYTES, "%.160s is not of the cluster %.64s", data_dir, cluster);
    }
    env.disk->ops->destroy(env.disk);
    if (!err)
        nid_out->v = (uint16_t)(index + 1);
    return err;
}
