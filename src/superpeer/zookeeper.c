/* The value, the leader and the session, as states that step carries on. */
#include "superpeer/zookeeper.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zookeeper/zookeeper.h>

#include "base/assert.h"
#include "base/crew.h"
#include "base/lock.h"
#include "base/log.h"
#include "cluster/view.h"

#define PATH_MAX_BYTES 96
#define POLL_BUSY_NS UINT64_C(500000)
#define POLL_IDLE_NS UINT64_C(10000000)
#define RETRY_NS UINT64_C(500000000)
#define CLOSE_WAIT_MS 1000

enum what {
    SESSION,
    CHANGED,
    VALUE_SYNCED,
    VALUE_READ,
    VALUE_WRITTEN,
    FOLDER_MADE,
    LEADER_MADE,
    LEADER_READ,
    SYNCED,
    LEADER_CONFIRMED,
};

/* Something that a thread of libzookeeper brings. */
struct event {
    struct event *next;
    enum what what;
    uint64_t session; /* which of our handles it is of */
    int rc;           /* SESSION: the state */
    int32_t version;
    int64_t changed; /* when that was written, in ZooKeeper's count of changes */
    int64_t owner;
    uint64_t created; /* when the leader's entry was made, in ZooKeeper's count of changes */
    size_t size;
    uint8_t bytes[];
};

/* What a question of ours is about; freed by its answer. */
struct question {
    struct sh_zookeeper *zookeeper;
    enum what what;
    uint64_t session;
};

struct sh_zookeeper {
    char *servers;
    char folder[PATH_MAX_BYTES], value_path[PATH_MAX_BYTES + 16], leader_path[PATH_MAX_BYTES + 16];
    int session_ms;
    zhandle_t *handle;
    struct sh_lock lock;
    struct event *events, **events_end; /* under lock */
    uint64_t session;                   /* under lock, which the callbacks need */
    int state;
    uint64_t retry_ns;  /* after an error: not before */
    unsigned under_way; /* questions of this session without an answer yet */
    bool is_over;       /* the session has expired: a new one is to be begun */
    /* The value. */
    uint8_t *value;
    size_t value_size;
    int32_t version;
    int64_t changed;
    uint64_t number;
    bool is_read, is_reading, is_writing;
    bool is_watched;     /* we will hear of the next change */
    bool is_synced;      /* read or written since the connection was made */
    bool is_caught_up;   /* the server has caught up with the others for the first read */
    int folders_to_make; /* 0: none, else which is next of three */
    bool is_making;
    uint8_t *written_value; /* under way */
    size_t written_size;
    enum shoal_err written;
    /* The leader. */
    uint16_t stands_as;
    bool leader_is_known, leader_is_asked, leader_is_free;
    bool leads;
    uint16_t leader;
    uint64_t term;
    /* When it surely led: each question is dated by its sending, and counts once the value has been
     * read that it found. */
    uint64_t confirm_ns, confirm_due_ns, confirm_sent_ns;
    bool is_confirming, is_synced_up;
    uint64_t confirmed_ns, led_ns;
};

/* --- What libzookeeper's threads call --------------------------------------------------------- */

static void push(struct sh_zookeeper *zookeeper, const struct event *event, const char *bytes,
                 int size)
{
    size_t room = bytes && size > 0 ? (size_t)size : 0;
    struct event *copy = malloc(sizeof *copy + room);
    SH_ASSERT(copy); /* without it nobody would know that something is over */
    memcpy(copy, event, sizeof *event);
    copy->next = NULL;
    copy->size = room;
    if (room)
        memcpy(copy->bytes, bytes, room);
    sh_lock_take(&zookeeper->lock);
    if (!event->session)
        copy->session = zookeeper->session;
    *zookeeper->events_end = copy;
    zookeeper->events_end = &copy->next;
    sh_lock_release(&zookeeper->lock);
}

static void on_watch(zhandle_t *handle, int type, int state, const char *path, void *context)
{
    (void)handle;
    (void)path;
    bool is_session = type == ZOO_SESSION_EVENT;
    struct event event = {.what = is_session ? SESSION : CHANGED, .rc = state};
    push(context, &event, NULL, 0);
}

static void end(const void *data, struct event *event, const char *bytes, int size)
{
    struct question *question = (struct question *)data;
    event->what = question->what;
    event->session = question->session;
    push(question->zookeeper, event, bytes, size);
    free(question);
}

static void on_data(int rc, const char *bytes, int size, const struct Stat *stat, const void *data)
{
    struct event event = {.rc = rc};
    if (rc == ZOK && stat) {
        event.version = stat->version;
        event.changed = stat->mzxid;
        event.owner = stat->ephemeralOwner;
        event.created = (uint64_t)stat->czxid;
    }
    end(data, &event, bytes, rc == ZOK ? size : 0);
}

static void on_stat(int rc, const struct Stat *stat, const void *data)
{
    struct event event = {.rc = rc};
    if (rc == ZOK && stat) {
        event.version = stat->version;
        event.changed = stat->mzxid;
    }
    end(data, &event, NULL, 0);
}

static void on_made(int rc, const char *path, const void *data)
{
    (void)path;
    struct event event = {.rc = rc};
    end(data, &event, NULL, 0);
}

static void on_log(const char *text)
{
    SH_DEBUG("zookeeper", "library", SH_TEXT("says", text));
}

/* --- Session --------------------------------------------------------------------------------- */

/* Whoever leads next has not been confirmed. */
static void led_forget(struct sh_zookeeper *zookeeper)
{
    zookeeper->leads = false;
    zookeeper->confirmed_ns = zookeeper->led_ns = 0;
}

/* Nothing that was asked in the session before will be answered; nothing that it knew is sure. */
static void forget(struct sh_zookeeper *zookeeper)
{
    zookeeper->is_read = zookeeper->is_reading = zookeeper->is_making = false;
    zookeeper->leader_is_known = zookeeper->leader_is_asked = zookeeper->leader_is_free = false;
    zookeeper->is_confirming = false;
    led_forget(zookeeper);
    zookeeper->leader = 0;
    if (zookeeper->is_writing)
        zookeeper->written = SHOAL_ECONNLOST;
    zookeeper->is_writing = false;
}

static bool session_begin(struct sh_zookeeper *zookeeper)
{
    if (zookeeper->handle)
        zookeeper_close(zookeeper->handle);
    forget(zookeeper);
    zookeeper->state = 0;
    zookeeper->under_way = 0;
    zookeeper->is_over = false;
    sh_lock_take(&zookeeper->lock);
    zookeeper->session++;
    sh_lock_release(&zookeeper->lock);
    zookeeper->handle = zookeeper_init2(zookeeper->servers, on_watch, zookeeper->session_ms, NULL,
                                        zookeeper, 0, on_log);
    return zookeeper->handle;
}

enum shoal_err sh_zookeeper_create(const char *servers, const char *cluster, uint64_t session_ns,
                                   uint64_t confirm_ns, struct sh_zookeeper **zookeeper_out)
{
    struct sh_zookeeper *zookeeper = calloc(1, sizeof *zookeeper);
    if (!zookeeper)
        return SHOAL_ENOMEM;
    sh_lock_init(&zookeeper->lock, SH_LOCK_ZOOKEEPER);
    zookeeper->events_end = &zookeeper->events;
    zookeeper->servers = strdup(servers);
    zookeeper->confirm_ns = confirm_ns;
    zookeeper->session_ms = (int)(session_ns / 1000000);
    if (zookeeper->session_ms < 1)
        zookeeper->session_ms = 1;
    snprintf(zookeeper->folder, sizeof zookeeper->folder, "/shoal/%s", cluster);
    snprintf(zookeeper->value_path, sizeof zookeeper->value_path, "%s/registry", zookeeper->folder);
    snprintf(zookeeper->leader_path, sizeof zookeeper->leader_path, "%s/leader", zookeeper->folder);
    zoo_set_debug_level(ZOO_LOG_LEVEL_WARN);
    enum shoal_err err = zookeeper->servers ? SHOAL_OK : SHOAL_ENOMEM;
    if (!err && !session_begin(zookeeper)) {
        SH_ERROR("zookeeper", "the option zookeeper is no list of servers (host:port,host:port)",
                 SH_TEXT("servers", servers));
        err = SHOAL_EADDRESS;
    }
    if (err) {
        sh_zookeeper_destroy(zookeeper);
        return err;
    }
    *zookeeper_out = zookeeper;
    return SHOAL_OK;
}

/* --- Asking ---------------------------------------------------------------------------------- */

static struct question *question_make(struct sh_zookeeper *zookeeper, enum what what)
{
    struct question *question = malloc(sizeof *question);
    if (question)
        *question = (struct question){zookeeper, what, zookeeper->session};
    return question;
}

/* Whether a question was taken; if not, it is asked again later. */
static bool asked(struct sh_zookeeper *zookeeper, struct question *question, int rc,
                  uint64_t now_ns)
{
    if (rc == ZOK) {
        zookeeper->under_way++;
        return true;
    }
    free(question);
    zookeeper->retry_ns = now_ns + RETRY_NS;
    return false;
}

/* The server of a new connection may be behind one that this process has read from before: it has to
 * catch up before the first read. */
static unsigned value_ask(struct sh_zookeeper *zookeeper, uint64_t now_ns)
{
    if (!zookeeper->is_synced) {
        struct question *sync = question_make(zookeeper, VALUE_SYNCED);
        zookeeper->is_caught_up = false;
        if (!sync ||
            !asked(zookeeper, sync,
                   zoo_async(zookeeper->handle, zookeeper->value_path, on_made, sync), now_ns))
            return 0;
    }
    struct question *question = question_make(zookeeper, VALUE_READ);
    if (!question)
        return 0;
    zookeeper->is_reading = asked(
        zookeeper, question,
        zoo_awget(zookeeper->handle, zookeeper->value_path, on_watch, zookeeper, on_data, question),
        now_ns);
    return 1;
}

/* Makes /shoal, /shoal/CLUSTER and the value, whichever is not there. */
static unsigned folder_ask(struct sh_zookeeper *zookeeper, uint64_t now_ns)
{
    const char *const paths[] = {"/shoal", zookeeper->folder, zookeeper->value_path};
    struct question *question = question_make(zookeeper, FOLDER_MADE);
    if (!question)
        return 0;
    zookeeper->is_making =
        asked(zookeeper, question,
              zoo_acreate(zookeeper->handle, paths[zookeeper->folders_to_make - 1], "", 0,
                          &ZOO_OPEN_ACL_UNSAFE, 0, on_made, question),
              now_ns);
    return 1;
}

static unsigned leader_ask(struct sh_zookeeper *zookeeper, uint64_t now_ns)
{
    struct question *question =
        question_make(zookeeper, zookeeper->leader_is_free ? LEADER_MADE : LEADER_READ);
    if (!question)
        return 0;
    int rc;
    if (zookeeper->leader_is_free) {
        char as[8];
        int size = snprintf(as, sizeof as, "%u", (unsigned)zookeeper->stands_as);
        rc = zoo_acreate(zookeeper->handle, zookeeper->leader_path, as, size, &ZOO_OPEN_ACL_UNSAFE,
                         ZOO_EPHEMERAL, on_made, question);
    } else {
        rc = zoo_awget(zookeeper->handle, zookeeper->leader_path, on_watch, zookeeper, on_data,
                       question);
    }
    zookeeper->leader_is_asked = asked(zookeeper, question, rc, now_ns);
    return 1;
}

/* Asks whether this session still has the leadership. The server that it is connected to may be
 * behind the others, hence sync, which has it catch up with them before it answers; and a change of
 * the value that it has seen by then is told before the answer. Both are sent at once, and are
 * answered in order. */
static unsigned confirm_ask(struct sh_zookeeper *zookeeper, uint64_t now_ns)
{
    struct question *sync = question_make(zookeeper, SYNCED);
    struct question *look = question_make(zookeeper, LEADER_CONFIRMED);
    if (!sync || !look) {
        free(sync);
        free(look);
        return 0;
    }
    zookeeper->confirm_due_ns = now_ns + zookeeper->confirm_ns;
    zookeeper->confirm_sent_ns = now_ns;
    zookeeper->is_synced_up = false;
    if (!asked(zookeeper, sync, zoo_async(zookeeper->handle, zookeeper->leader_path, on_made, sync),
               now_ns)) {
        free(look);
        return 1;
    }
    zookeeper->is_confirming =
        asked(zookeeper, look,
              zoo_aget(zookeeper->handle, zookeeper->leader_path, 0, on_data, look), now_ns);
    return 1;
}

static unsigned ask(struct sh_zookeeper *zookeeper, uint64_t now_ns)
{
    unsigned work = 0;
    if (zookeeper->state != ZOO_CONNECTED_STATE || now_ns < zookeeper->retry_ns)
        return 0;
    if (zookeeper->folders_to_make && !zookeeper->is_making)
        work += folder_ask(zookeeper, now_ns);
    else if (!zookeeper->folders_to_make && !(zookeeper->is_read && zookeeper->is_watched) &&
             !zookeeper->is_reading && !zookeeper->is_writing)
        work += value_ask(zookeeper, now_ns);
    if (zookeeper->stands_as && !zookeeper->leader_is_known && !zookeeper->leader_is_asked)
        work += leader_ask(zookeeper, now_ns);
    if (zookeeper->leads && !zookeeper->is_confirming && now_ns >= zookeeper->confirm_due_ns)
        work += confirm_ask(zookeeper, now_ns);
    return work;
}

/* --- Answers --------------------------------------------------------------------------------- */

static void trouble(struct sh_zookeeper *zookeeper, int rc, uint64_t now_ns)
{
    zookeeper->retry_ns = now_ns + RETRY_NS;
    if (rc != ZCONNECTIONLOSS && rc != ZCLOSING && rc != ZSESSIONEXPIRED && rc != ZOPERATIONTIMEOUT)
        SH_ERROR("zookeeper", "ZooKeeper refused a request; retrying",
                 SH_TEXT("reason", zerror(rc)));
}

static void value_set(struct sh_zookeeper *zookeeper, uint8_t *bytes, size_t size,
                      const struct event *event)
{
    free(zookeeper->value);
    zookeeper->value = bytes;
    zookeeper->value_size = size;
    zookeeper->version = event->version;
    zookeeper->changed = event->changed;
    zookeeper->number++;
    zookeeper->is_read = zookeeper->is_synced = true;
}

static void on_value_read(struct sh_zookeeper *zookeeper, const struct event *event,
                          uint64_t now_ns)
{
    zookeeper->is_reading = false;
    if (event->rc == ZOK && !zookeeper->is_synced && !zookeeper->is_caught_up) {
        zookeeper->retry_ns = now_ns + RETRY_NS / 10;
        return;
    }
    if (event->rc == ZNONODE) {
        zookeeper->folders_to_make = 1;
        return;
    }
    if (event->rc != ZOK) {
        trouble(zookeeper, event->rc, now_ns);
        return;
    }
    zookeeper->is_watched = true;
    /* Versions alone come again when ZooKeeper is restored from a backup. */
    if (zookeeper->number && event->version == zookeeper->version &&
        event->changed == zookeeper->changed) {
        zookeeper->is_read = zookeeper->is_synced = true;
        return;
    }
    uint8_t *bytes = malloc(event->size ? event->size : 1);
    if (!bytes)
        return; /* it is read again */
    memcpy(bytes, event->bytes, event->size);
    value_set(zookeeper, bytes, event->size, event);
}

static void on_value_written(struct sh_zookeeper *zookeeper, const struct event *event,
                             uint64_t now_ns)
{
    if (!zookeeper->is_writing)
        return;
    zookeeper->is_writing = false;
    if (event->rc == ZOK) {
        zookeeper->written = SHOAL_OK;
        value_set(zookeeper, zookeeper->written_value, zookeeper->written_size, event);
        zookeeper->written_value = NULL;
        return;
    }
    zookeeper->written = event->rc == ZBADVERSION ? SHOAL_EBUSY : SHOAL_ECONNLOST;
    zookeeper->is_read = false;
    if (event->rc != ZBADVERSION)
        trouble(zookeeper, event->rc, now_ns);
}

bool sh_zookeeper_leader_get(struct sh_bytes bytes, uint16_t *leader_out)
{
    unsigned leader = 0;
    if (!bytes.size || bytes.size > 2 || bytes.at[0] == '0')
        return false;
    for (size_t i = 0; i < bytes.size; i++) {
        if (bytes.at[i] < '0' || bytes.at[i] > '9')
            return false;
        leader = 10 * leader + (bytes.at[i] - '0');
    }
    if (leader > SH_SUPERPEERS_MAX)
        return false;
    *leader_out = (uint16_t)leader;
    return true;
}

static void on_leader_read(struct sh_zookeeper *zookeeper, const struct event *event,
                           uint64_t now_ns)
{
    const clientid_t *own = zoo_client_id(zookeeper->handle);
    bool leads = event->rc == ZOK && own && event->owner == own->client_id;
    zookeeper->leader_is_asked = false;
    if (!leads)
        led_forget(zookeeper);
    zookeeper->leader = 0;
    if (event->rc == ZNONODE) {
        zookeeper->leader_is_free = true;
        return;
    }
    if (event->rc != ZOK) {
        trouble(zookeeper, event->rc, now_ns);
        return;
    }
    zookeeper->leader_is_known = true;
    if (!sh_zookeeper_leader_get(sh_bytes_make(event->bytes, event->size), &zookeeper->leader))
        SH_ERROR("zookeeper",
                 "the entry that names the leader holds no superpeer's ID: remove it, or use "
                 "another ZooKeeper",
                 SH_TEXT("path", zookeeper->leader_path));
    zookeeper->term = event->created;
    if (leads && !zookeeper->leads)
        SH_INFO("zookeeper", "this superpeer leads", SH_U64("as", zookeeper->leader));
    zookeeper->leads = leads;
}

static void on_leader_confirmed(struct sh_zookeeper *zookeeper, const struct event *event)
{
    const clientid_t *own = zoo_client_id(zookeeper->handle);
    zookeeper->is_confirming = false;
    if (event->rc == ZOK && zookeeper->is_synced_up && zookeeper->leads && own &&
        event->owner == own->client_id)
        zookeeper->confirmed_ns = zookeeper->confirm_sent_ns;
}

static void on_session(struct sh_zookeeper *zookeeper, int state)
{
    if (state == zookeeper->state)
        return;
    zookeeper->state = state;
    if (state == ZOO_CONNECTED_STATE) {
        SH_INFO("zookeeper", "connected to ZooKeeper");
    } else if (state == ZOO_EXPIRED_SESSION_STATE || state == ZOO_AUTH_FAILED_STATE) {
        SH_WARN("zookeeper", "the session with ZooKeeper has ended");
        zookeeper->is_over = true;
    } else {
        SH_WARN("zookeeper", "not connected to ZooKeeper");
    }
    /* Questions that are under way are answered with an error. What was known is asked again. */
    zookeeper->is_read = zookeeper->is_watched = zookeeper->is_synced = false;
    zookeeper->leader_is_known = zookeeper->leader_is_free = false;
    led_forget(zookeeper);
}

static void take(struct sh_zookeeper *zookeeper, const struct event *event, uint64_t now_ns)
{
    if (event->what != SESSION && event->what != CHANGED)
        zookeeper->under_way--;
    switch (event->what) {
    case SESSION:
        on_session(zookeeper, event->rc);
        break;
    case CHANGED: /* the value or the leader: which, the next look will show */
        zookeeper->is_read = zookeeper->is_watched = false;
        zookeeper->leader_is_known = zookeeper->leader_is_free = false;
        break;
    case VALUE_SYNCED:
        zookeeper->is_caught_up = event->rc == ZOK;
        break;
    case VALUE_READ:
        on_value_read(zookeeper, event, now_ns);
        break;
    case VALUE_WRITTEN:
        on_value_written(zookeeper, event, now_ns);
        break;
    case FOLDER_MADE:
        zookeeper->is_making = false;
        if (event->rc == ZOK || event->rc == ZNODEEXISTS)
            zookeeper->folders_to_make = (zookeeper->folders_to_make + 1) % 4;
        else
            trouble(zookeeper, event->rc, now_ns);
        break;
    case LEADER_MADE: /* whether it is ours, or somebody else was faster: a look will show */
        zookeeper->leader_is_asked = zookeeper->leader_is_free = false;
        if (event->rc == ZNONODE)
            zookeeper->retry_ns = now_ns + RETRY_NS / 10; /* its folder is about to be made */
        else if (event->rc != ZOK && event->rc != ZNODEEXISTS)
            trouble(zookeeper, event->rc, now_ns);
        break;
    case LEADER_READ:
        on_leader_read(zookeeper, event, now_ns);
        break;
    case SYNCED:
        zookeeper->is_synced_up = event->rc == ZOK;
        break;
    case LEADER_CONFIRMED:
        on_leader_confirmed(zookeeper, event);
        break;
    }
}

static unsigned take_all(struct sh_zookeeper *zookeeper, uint64_t now_ns)
{
    unsigned work = 0;
    sh_lock_take(&zookeeper->lock);
    struct event *events = zookeeper->events;
    zookeeper->events = NULL;
    zookeeper->events_end = &zookeeper->events;
    sh_lock_release(&zookeeper->lock);
    while (events) {
        struct event *event = events;
        events = event->next;
        if (event->session == zookeeper->session)
            take(zookeeper, event, now_ns);
        free(event);
        work++;
    }
    return work;
}

unsigned sh_zookeeper_step(struct sh_zookeeper *zookeeper, uint64_t now_ns)
{
    unsigned work = take_all(zookeeper, now_ns);
    if ((zookeeper->is_over || !zookeeper->handle) && now_ns >= zookeeper->retry_ns) {
        zookeeper->retry_ns = now_ns + RETRY_NS;
        (void)session_begin(zookeeper);
        work++;
    }
    /* What the answer's time knew of the value is known here. */
    if (zookeeper->is_read && zookeeper->is_watched)
        zookeeper->led_ns = zookeeper->confirmed_ns;
    return work + (zookeeper->handle ? ask(zookeeper, now_ns) : 0);
}

void sh_zookeeper_destroy(struct sh_zookeeper *zookeeper)
{
    if (!zookeeper)
        return;
    /* libzookeeper 3.8 leaks what is under way when it is closed. */
    const struct timespec ms = {.tv_nsec = 1000000};
    for (unsigned i = 0; zookeeper->under_way && i < CLOSE_WAIT_MS; i++) {
        (void)take_all(zookeeper, 0);
        if (zookeeper->under_way)
            (void)nanosleep(&ms, NULL);
    }
    if (zookeeper->handle)
        zookeeper_close(zookeeper->handle); /* its threads have ended then */
    while (zookeeper->events) {
        struct event *event = zookeeper->events;
        zookeeper->events = event->next;
        free(event);
    }
    sh_lock_destroy(&zookeeper->lock);
    free(zookeeper->servers);
    free(zookeeper->value);
    free(zookeeper->written_value);
    free(zookeeper);
}

uint64_t sh_zookeeper_due_ns(const struct sh_zookeeper *zookeeper, uint64_t now_ns)
{
    bool is_busy = zookeeper->is_reading || zookeeper->is_writing || zookeeper->is_making ||
                   zookeeper->leader_is_asked;
    return now_ns + (is_busy ? POLL_BUSY_NS : POLL_IDLE_NS);
}

/* --- The value ------------------------------------------------------------------------------- */

bool sh_zookeeper_is_current(const struct sh_zookeeper *zookeeper)
{
    /* A change that was seen and not read yet is no older than a message would be. */
    return zookeeper->state == ZOO_CONNECTED_STATE && zookeeper->is_synced;
}

struct sh_bytes sh_zookeeper_value(const struct sh_zookeeper *zookeeper)
{
    return sh_bytes_make(zookeeper->value, zookeeper->value_size);
}

uint64_t sh_zookeeper_number(const struct sh_zookeeper *zookeeper)
{
    return zookeeper->number;
}

bool sh_zookeeper_can_write(const struct sh_zookeeper *zookeeper)
{
    return zookeeper->state == ZOO_CONNECTED_STATE && zookeeper->is_read && !zookeeper->is_writing;
}

enum shoal_err sh_zookeeper_write(struct sh_zookeeper *zookeeper, struct sh_bytes value)
{
    if (!sh_zookeeper_can_write(zookeeper))
        return SHOAL_EBUSY;
    if (value.size > SH_ZOOKEEPER_VALUE_BYTES_MAX)
        return SHOAL_ETOOBIG;
    uint8_t *copy = malloc(value.size ? value.size : 1);
    struct question *question = question_make(zookeeper, VALUE_WRITTEN);
    if (!copy || !question) {
        free(copy);
        free(question);
        return SHOAL_ENOMEM;
    }
    memcpy(copy, value.at, value.size);
    free(zookeeper->written_value);
    zookeeper->written_value = copy;
    zookeeper->written_size = value.size;
    if (zoo_aset(zookeeper->handle, zookeeper->value_path, (const char *)copy, (int)value.size,
                 zookeeper->version, on_stat, question) != ZOK) {
        free(question);
        return SHOAL_EBUSY;
    }
    zookeeper->under_way++;
    zookeeper->is_writing = true;
    zookeeper->written = SHOAL_EAGAIN;
    return SHOAL_OK;
}

enum shoal_err sh_zookeeper_written(const struct sh_zookeeper *zookeeper)
{
    return zookeeper->is_writing ? SHOAL_EAGAIN : zookeeper->written;
}

/* --- The leader ------------------------------------------------------------------------------ */

void sh_zookeeper_stand(struct sh_zookeeper *zookeeper, uint16_t as)
{
    SH_ASSERT(as && as <= SH_SUPERPEERS_MAX);
    zookeeper->stands_as = as;
}

bool sh_zookeeper_leads(const struct sh_zookeeper *zookeeper)
{
    return zookeeper->leads && zookeeper->state == ZOO_CONNECTED_STATE;
}

uint64_t sh_zookeeper_term(const struct sh_zookeeper *zookeeper)
{
    return sh_zookeeper_leads(zookeeper) ? zookeeper->term : 0;
}

uint64_t sh_zookeeper_led_ns(const struct sh_zookeeper *zookeeper)
{
    return sh_zookeeper_leads(zookeeper) ? zookeeper->led_ns : 0;
}

uint16_t sh_zookeeper_leader(const struct sh_zookeeper *zookeeper)
{
    return zookeeper->state == ZOO_CONNECTED_STATE ? zookeeper->leader : 0;
}
