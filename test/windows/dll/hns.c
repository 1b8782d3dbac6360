// computenetwork.dll and vmcompute.dll for wine: every call is passed on to the package fakehns,
// which listens on a TCP port of the loopback that FAKE_HNS in the environment names. There is
// nothing of the Host Networking Service in here but its ABI. It is installed under both names.
//
// Where nothing listens, calls fail as they do on Windows while the service is not running.
//
// A request is: its length (32 bits), the name of the function with a length of 8 bits, a
// GUID (16 bytes), a handle (64 bits), three strings. An answer is: HRESULT, handle, two
// strings. A string is UTF-16 with its length in bytes (32 bits), -1 for a null pointer.
// Numbers are little endian.
#define WIN32_LEAN_AND_MEAN
#include <winsock2.h>
#include <windows.h>
#include <objbase.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __declspec(dllexport) HRESULT WINAPI
#define NOT_RUNNING HRESULT_FROM_WIN32(RPC_S_UNKNOWN_IF)

static SRWLOCK lock = SRWLOCK_INIT;
static SOCKET peer = INVALID_SOCKET;

static BOOL dial(void)
{
    static BOOL started;
    WSADATA data;
    char port[16];
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    DWORD n = GetEnvironmentVariableA("FAKE_HNS", port, sizeof port);

    if (!started && WSAStartup(MAKEWORD(2, 2), &data))
        return FALSE;
    started = TRUE;
    to.sin_port = htons(n > 0 && n < sizeof port ? atoi(port) : 0);
    peer = socket(AF_INET, SOCK_STREAM, 0);
    if (peer == INVALID_SOCKET)
        return FALSE;
    int one = 1;
    setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, (char *)&one, sizeof one);
    return !connect(peer, (struct sockaddr *)&to, sizeof to);
}

static BOOL transfer(BOOL sending, void *data, size_t size)
{
    for (char *at = data; size > 0;) {
        int n = sending ? send(peer, at, (int)size, 0) : recv(peer, at, (int)size, 0);
        if (n <= 0)
            return FALSE;
        at += n;
        size -= n;
    }
    return TRUE;
}

static void put(uint8_t **at, const void *data, size_t size)
{
    memcpy(*at, data, size);
    *at += size;
}

static BOOL receive_string(PWSTR *out)
{
    uint32_t size;
    PWSTR s = NULL;

    if (!transfer(FALSE, &size, sizeof size))
        return FALSE;
    if (size != UINT32_MAX) {
        if (!(s = CoTaskMemAlloc(size + sizeof *s)) || !transfer(FALSE, s, size))
            return FALSE;
        s[size / sizeof *s] = 0;
    }
    if (out)
        *out = s;
    else
        CoTaskMemFree(s);
    return TRUE;
}

static BOOL exchange(uint8_t *request, size_t size, HRESULT *hr, uint64_t *handle, PWSTR *document, PWSTR *error)
{
    return transfer(TRUE, request, size) && transfer(FALSE, hr, 4) && transfer(FALSE, handle, 8) &&
           receive_string(document) && receive_string(error);
}

static HRESULT call(const char *name, const GUID *id, void *in, const WCHAR *a, const WCHAR *b, const WCHAR *c,
                    void **out, PWSTR *document, PWSTR *error)
{
    const WCHAR *strings[3] = {a, b, c};
    uint8_t length = (uint8_t)strlen(name);
    size_t size = 4 + 1 + length + 16 + 8;
    uint64_t handle = (uintptr_t)in;
    HRESULT hr = NOT_RUNNING;

    if (document)
        *document = NULL;
    if (error)
        *error = NULL;
    for (int i = 0; i < 3; i++)
        size += 4 + (strings[i] ? wcslen(strings[i]) * sizeof(WCHAR) : 0);
    uint8_t *request = calloc(1, size), *at = request;
    if (!request)
        return E_OUTOFMEMORY;
    uint32_t rest = (uint32_t)size - 4;
    put(&at, &rest, 4);
    put(&at, &length, 1);
    put(&at, name, length);
    if (id)
        memcpy(at, id, 16);
    at += 16;
    put(&at, &handle, 8);
    for (int i = 0; i < 3; i++) {
        uint32_t n = strings[i] ? (uint32_t)(wcslen(strings[i]) * sizeof(WCHAR)) : UINT32_MAX;
        put(&at, &n, 4);
        if (strings[i])
            put(&at, strings[i], n);
    }

    AcquireSRWLockExclusive(&lock);
    if ((peer == INVALID_SOCKET && !dial()) || !exchange(request, size, &hr, &handle, document, error)) {
        closesocket(peer);
        peer = INVALID_SOCKET;
        hr = NOT_RUNNING;
    }
    ReleaseSRWLockExclusive(&lock);
    free(request);
    if (SUCCEEDED(hr) && out)
        *out = (void *)(uintptr_t)handle;
    return hr;
}

#define KIND(Kind, Kinds)                                                                            \
    EXPORT HcnEnumerate##Kinds(PCWSTR query, PWSTR *ids, PWSTR *error)                               \
    { return call("HcnEnumerate" #Kinds, NULL, NULL, query, NULL, NULL, NULL, ids, error); }         \
    EXPORT HcnOpen##Kind(const GUID *id, void **handle, PWSTR *error)                                \
    { return call("HcnOpen" #Kind, id, NULL, NULL, NULL, NULL, handle, NULL, error); }               \
    EXPORT HcnModify##Kind(void *handle, PCWSTR settings, PWSTR *error)                              \
    { return call("HcnModify" #Kind, NULL, handle, settings, NULL, NULL, NULL, NULL, error); }       \
    EXPORT HcnQuery##Kind##Properties(void *handle, PCWSTR query, PWSTR *document, PWSTR *error)     \
    { return call("HcnQuery" #Kind "Properties", NULL, handle, query, NULL, NULL, NULL, document, error); } \
    EXPORT HcnDelete##Kind(const GUID *id, PWSTR *error)                                             \
    { return call("HcnDelete" #Kind, id, NULL, NULL, NULL, NULL, NULL, NULL, error); }               \
    EXPORT HcnClose##Kind(void *handle)                                                              \
    { return call("HcnClose" #Kind, NULL, handle, NULL, NULL, NULL, NULL, NULL, NULL); }

#define CREATE(Kind)                                                                                 \
    EXPORT HcnCreate##Kind(const GUID *id, PCWSTR settings, void **handle, PWSTR *error)             \
    { return call("HcnCreate" #Kind, id, NULL, settings, NULL, NULL, handle, NULL, error); }

KIND(Network, Networks) CREATE(Network)
KIND(LoadBalancer, LoadBalancers) CREATE(LoadBalancer)
KIND(Namespace, Namespaces) CREATE(Namespace)
KIND(SdnRoute, SdnRoutes) CREATE(SdnRoute)
KIND(Endpoint, Endpoints)

EXPORT HcnCreateEndpoint(void *network, const GUID *id, PCWSTR settings, void **handle, PWSTR *error)
{
    return call("HcnCreateEndpoint", id, network, settings, NULL, NULL, handle, NULL, error);
}

EXPORT HNSCall(PCWSTR method, PCWSTR path, PCWSTR request, PWSTR *response)
{
    return call("HNSCall", NULL, NULL, method, path, request, NULL, response, NULL);
}
