// The ABI of the Host Networking Service: what computenetwork.dll and vmcompute.dll export, as far as
// kube-proxies use it. It is installed under both names. The service itself is the Go package fakehns in the
// process of the test, which listens on the port of the loopback in the environment variable HNS_PORT, and for
// services, which lack it, on ANYBODYS_PORT.
//
// Both sides send messages of UTF-16 text: fields, each with a separator after it, and a NUL. A call is the
// name of the function, the GUID, the handle and up to three texts; an answer the HRESULT, a handle, a
// document and an error record. Numbers are in hexadecimal. What is absent is empty.
#define WIN32_LEAN_AND_MEAN
#include <winsock2.h>
#include <windows.h>
#include <objbase.h>
#include <stdlib.h>
#include <wchar.h>

#define ANYBODYS_PORT 17018

#define SEPARATOR L'\x1e' // in no JSON, which escapes it

// What calls return on Windows while the service is not running: its RPC interface is unknown.
#define AWAY HRESULT_FROM_WIN32(RPC_S_UNKNOWN_IF)

static CRITICAL_SECTION turn; // one call at a time
static SOCKET service = INVALID_SOCKET;

static void hang_up(void)
{
    closesocket(service);
    service = INVALID_SOCKET;
}

// reach connects to the service, unless it is connected. One that went away since the last call is noticed
// by the call, which fails once more, as on Windows.
static BOOL reach(void)
{
    WCHAR port[8];
    const BOOL at_once = TRUE;
    struct sockaddr_in address = {.sin_family = AF_INET};
    DWORD length = GetEnvironmentVariableW(L"HNS_PORT", port, ARRAYSIZE(port));

    if (service != INVALID_SOCKET)
        return TRUE;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(length && length < ARRAYSIZE(port) ? (u_short)_wtoi(port) : ANYBODYS_PORT);
    service = socket(AF_INET, SOCK_STREAM, IPPROTO_TCP);
    setsockopt(service, IPPROTO_TCP, TCP_NODELAY, (const char *)&at_once, sizeof at_once);
    if (connect(service, (struct sockaddr *)&address, sizeof address) == 0)
        return TRUE;
    hang_up();
    return FALSE;
}

static BOOL tell(const WCHAR *message, size_t length)
{
    const char *rest = (const char *)message, *end = (const char *)(message + length);

    while (rest < end) {
        int sent = send(service, rest, (int)(end - rest), 0);
        if (sent <= 0)
            return FALSE;
        rest += sent;
    }
    return TRUE;
}

// hear returns a message, NULL if the service is gone.
static WCHAR *hear(void)
{
    size_t room = 4096, used = 0; // bytes
    char *text = malloc(room);

    while (text) {
        int got = recv(service, text + used, (int)(room - used), 0);
        if (got <= 0)
            break;
        used += got;
        if (used % sizeof(WCHAR) == 0 && !((WCHAR *)text)[used / sizeof(WCHAR) - 1])
            return (WCHAR *)text; // nothing is sent unasked, so that this is the end
        if (used == room) {
            char *larger = realloc(text, room *= 2);
            if (!larger)
                break;
            text = larger;
        }
    }
    free(text);
    return NULL;
}

// next returns the next field of a message.
static WCHAR *next(WCHAR **message)
{
    WCHAR *field = *message, *end = wcschr(field, SEPARATOR);

    if (!end)
        return field + wcslen(field); // empty
    *end = 0;
    *message = end + 1;
    return field;
}

// give hands a text to the caller, who frees it; an empty one is none.
static void give(const WCHAR *text, PWSTR *to)
{
    size_t size = (wcslen(text) + 1) * sizeof *text;

    if (to && *text && (*to = CoTaskMemAlloc(size)))
        memcpy(*to, text, size);
}

// call is what a function has got, and where its results go.
struct call {
    const WCHAR *function;
    const GUID *id;
    void *handle;
    const WCHAR *texts[3];
    void **opened;
    PWSTR *document, *record;
};

static WCHAR *message_of(const struct call *c, size_t *length)
{
    WCHAR id[40] = L"", handle[20] = L"";
    const WCHAR *fields[] = {c->function, id, handle, c->texts[0], c->texts[1], c->texts[2]};
    size_t room = 1;

    if (c->id)
        StringFromGUID2(c->id, id, ARRAYSIZE(id));
    if (c->handle)
        _ui64tow((ULONG_PTR)c->handle, handle, 16);
    for (size_t i = 0; i < ARRAYSIZE(fields); i++)
        room += (fields[i] ? wcslen(fields[i]) : 0) + 1;
    WCHAR *message = malloc(room * sizeof *message), *end = message;
    if (!message)
        return NULL;
    for (size_t i = 0; i < ARRAYSIZE(fields); i++) {
        for (const WCHAR *from = fields[i]; from && *from;)
            *end++ = *from++;
        *end++ = SEPARATOR;
    }
    *end = 0;
    *length = room;
    return message;
}

static HRESULT make(struct call c)
{
    HRESULT result = AWAY;
    size_t length;
    WCHAR *message = message_of(&c, &length), *answer = NULL;

    if (!message)
        return E_OUTOFMEMORY;
    if (c.document)
        *c.document = NULL;
    if (c.record)
        *c.record = NULL;
    EnterCriticalSection(&turn);
    if (reach()) {
        if (tell(message, length))
            answer = hear();
        if (!answer)
            hang_up();
    }
    LeaveCriticalSection(&turn);
    free(message);
    if (answer) {
        WCHAR *rest = answer;
        result = (HRESULT)wcstoul(next(&rest), NULL, 16);
        ULONG_PTR handle = _wcstoui64(next(&rest), NULL, 16);
        if (c.opened && SUCCEEDED(result))
            *c.opened = (void *)handle;
        give(next(&rest), c.document);
        give(next(&rest), c.record);
    }
    free(answer);
    return result;
}

#define FUNCTION __declspec(dllexport) HRESULT WINAPI

// What there is for networks, endpoints and load balancers alike.
#define OBJECT(Name)                                                                                                  \
    FUNCTION HcnEnumerate##Name##s(PCWSTR query, PWSTR *ids, PWSTR *record)                                           \
    {                                                                                                                 \
        return make((struct call){L"HcnEnumerate" #Name "s", .texts = {query}, .document = ids, .record = record});   \
    }                                                                                                                 \
    FUNCTION HcnOpen##Name(const GUID *id, void **opened, PWSTR *record)                                              \
    {                                                                                                                 \
        return make((struct call){L"HcnOpen" #Name, id, .opened = opened, .record = record});                         \
    }                                                                                                                 \
    FUNCTION HcnClose##Name(void *handle)                                                                             \
    {                                                                                                                 \
        return make((struct call){L"HcnClose" #Name, .handle = handle});                                              \
    }                                                                                                                 \
    FUNCTION HcnDelete##Name(const GUID *id, PWSTR *record)                                                           \
    {                                                                                                                 \
        return make((struct call){L"HcnDelete" #Name, id, .record = record});                                         \
    }                                                                                                                 \
    FUNCTION HcnModify##Name(void *handle, PCWSTR settings, PWSTR *record)                                            \
    {                                                                                                                 \
        return make((struct call){L"HcnModify" #Name, .handle = handle, .texts = {settings}, .record = record});      \
    }                                                                                                                 \
    FUNCTION HcnQuery##Name##Properties(void *handle, PCWSTR query, PWSTR *document, PWSTR *record)                   \
    {                                                                                                                 \
        return make((struct call){L"HcnQuery" #Name "Properties", .handle = handle, .texts = {query},                 \
                                  .document = document, .record = record});                                           \
    }

OBJECT(Network)
OBJECT(Endpoint)
OBJECT(LoadBalancer)

FUNCTION HcnCreateNetwork(const GUID *id, PCWSTR settings, void **created, PWSTR *record)
{
    return make((struct call){L"HcnCreateNetwork", id, .texts = {settings}, .opened = created, .record = record});
}

FUNCTION HcnCreateLoadBalancer(const GUID *id, PCWSTR settings, void **created, PWSTR *record)
{
    return make((struct call){L"HcnCreateLoadBalancer", id, .texts = {settings}, .opened = created, .record = record});
}

FUNCTION HcnCreateEndpoint(void *network, const GUID *id, PCWSTR settings, void **created, PWSTR *record)
{
    return make((struct call){L"HcnCreateEndpoint", id, network, {settings}, created, .record = record});
}

FUNCTION HNSCall(PCWSTR method, PCWSTR path, PCWSTR body, PWSTR *answer)
{
    return make((struct call){L"HNSCall", .texts = {method, path, body}, .document = answer});
}

BOOL WINAPI DllMain(HINSTANCE module, DWORD reason, LPVOID reserved)
{
    WSADATA data;

    (void)module, (void)reserved;
    if (reason != DLL_PROCESS_ATTACH)
        return TRUE;
    InitializeCriticalSection(&turn);
    return WSAStartup(MAKEWORD(2, 2), &data) == 0;
}
