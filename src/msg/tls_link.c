#include <stdlib.h>

#include "base/assert.h"
#include "msg/tls_int.h"

void sh_tls_list_add(struct tls_link *link, enum tls_list list)
{
    struct tls *tls = link->tls;
    if (link->is_in[list])
        return;
    link->is_in[list] = true;
    link->next[list] = NULL;
    link->prev[list] = tls->tails[list];
    if (tls->tails[list])
        tls->tails[list]->next[list] = link;
    else
        tls->lists[list] = link;
    tls->tails[list] = link;
    tls->counts[list]++;
    if (list == READY) {
        atomic_fetch_add(&tls->ready_count, 1);
        if (atomic_load(&tls->watchers) > 0)
            tls->inner->ops->signal(tls->inner);
    }
}

void sh_tls_list_remove(struct tls_link *link, enum tls_list list)
{
    struct tls *tls = link->tls;
    if (!link->is_in[list])
        return;
    link->is_in[list] = false;
    if (link->prev[list])
        link->prev[list]->next[list] = link->next[list];
    else
        tls->lists[list] = link->next[list];
    if (link->next[list])
        link->next[list]->prev[list] = link->prev[list];
    else
        tls->tails[list] = link->prev[list];
    tls->counts[list]--;
    if (list == READY)
        atomic_fetch_sub(&tls->ready_count, 1);
}

void sh_tls_link_used(struct tls_link *link)
{
    struct tls *tls = link->tls;
    if (tls->tails[WARM] == link)
        return;
    sh_tls_list_remove(link, WARM);
    sh_tls_list_add(link, WARM);
    if (tls->counts[WARM] <= WARM_MAX)
        return;
    struct tls_link *coldest = tls->lists[WARM];
    sh_tls_list_remove(coldest, WARM);
    (void)SSL_free_buffers(coldest->ssl); /* 0: something is in them */
}

static struct tls_link **bucket_of(struct tls *tls, sh_link number)
{
    return &tls->buckets[(number ^ number >> 20) % BUCKETS];
}

struct tls_link *sh_tls_link_find(struct tls *tls, sh_link number)
{
    struct tls_link *link = *bucket_of(tls, number);
    while (link && link->number != number)
        link = link->bucket_next;
    return link;
}

struct tls_link *sh_tls_link_new(struct tls *tls, sh_link number, bool is_dialled)
{
    SH_ASSERT(!sh_tls_link_find(tls, number));
    struct tls_link *link = calloc(1, sizeof *link);
    BIO *bio = BIO_new(tls->method);
    SSL *ssl = SSL_new(tls->context);
    if (!link || !bio || !ssl) {
        free(link);
        BIO_free(bio);
        SSL_free(ssl);
        return NULL;
    }
    *link = (struct tls_link){.tls = tls,
                              .number = number,
                              .is_dialled = is_dialled,
                              .state = is_dialled ? OPENING : HANDSHAKE,
                              .ssl = ssl};
    BIO_set_data(bio, link);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl, bio, bio);
    SSL_set_app_data(ssl, link);
    if (is_dialled)
        SSL_set_connect_state(ssl);
    else
        SSL_set_accept_state(ssl);
    struct tls_link **bucket = bucket_of(tls, number);
    link->bucket_next = *bucket;
    *bucket = link;
    return link;
}

void sh_tls_cipher_release(struct tls_link *link)
{
    struct tls *tls = link->tls;
    struct tls_cipher *cipher = link->cipher;
    link->cipher = NULL;
    if (!cipher)
        return;
    if (tls->ciphers_count == CIPHERS_KEPT) {
        free(cipher);
        return;
    }
    cipher->next = tls->ciphers;
    tls->ciphers = cipher;
    tls->ciphers_count++;
}

struct tls_cipher *sh_tls_cipher_of(struct tls_link *link)
{
    struct tls *tls = link->tls;
    if (link->cipher)
        return link->cipher;
    struct tls_cipher *cipher = tls->ciphers;
    if (cipher) {
        tls->ciphers = cipher->next;
        tls->ciphers_count--;
    } else {
        cipher = malloc(sizeof *cipher);
    }
    if (cipher)
        cipher->size = cipher->sent = 0;
    link->cipher = cipher;
    return cipher;
}

void sh_tls_link_free(struct tls_link *link)
{
    struct tls_link **at = bucket_of(link->tls, link->number);
    while (*at != link)
        at = &(*at)->bucket_next;
    *at = link->bucket_next;
    sh_tls_list_remove(link, READY);
    sh_tls_list_remove(link, YOUNG);
    sh_tls_list_remove(link, WARM);
    sh_tls_list_remove(link, SHAKING);
    sh_tls_cipher_release(link);
    OPENSSL_cleanse(&link->secret, sizeof link->secret);
    SSL_free(link->ssl);
    free(link);
}
