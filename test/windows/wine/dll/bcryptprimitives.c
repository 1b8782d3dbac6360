// bcryptprimitives.dll, which wine 8.0 lacks and without which no Go program starts there. Go loads it
// for ProcessPrng, before it looks up anything else. So this is also the place to hand Go two functions
// that behave like those of Windows where wine's do not.
#define WIN32_LEAN_AND_MEAN
#include <winsock2.h>
#include <windows.h>
#include <ntsecapi.h>
#include <winternl.h>
#include <string.h>

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE buffer, SIZE_T size)
{
    const ULONG most = 1 << 24; // RtlGenRandom takes 32 bits

    for (; size > most; buffer += most, size -= most)
        if (!RtlGenRandom(buffer, most))
            return FALSE;
    return RtlGenRandom(buffer, (ULONG)size);
}

typedef int(WINAPI *ioctl_function)(SOCKET, DWORD, LPVOID, DWORD, LPVOID, DWORD, LPDWORD, LPWSAOVERLAPPED,
                                    LPWSAOVERLAPPED_COMPLETION_ROUTINE);
typedef NTSTATUS(NTAPI *set_file_function)(HANDLE, PIO_STATUS_BLOCK, PVOID, ULONG, int);

static ioctl_function wine_ioctl;
static set_file_function wine_set_file;

// Go asks each UDP socket not to report unreachable networks, and closes a socket that refuses to.
static int WINAPI ioctl(SOCKET s, DWORD code, LPVOID in, DWORD in_size, LPVOID out, DWORD out_size, LPDWORD returned,
                        LPWSAOVERLAPPED overlapped, LPWSAOVERLAPPED_COMPLETION_ROUTINE done)
{
    const DWORD udp_netreset = 0x9800000f;

    if (code != udp_netreset)
        return wine_ioctl(s, code, in, in_size, out, out_size, returned, overlapped, done);
    *returned = 0;
    return 0;
}

// Go deletes files in the way of Windows 10, and in the older one if a status says that this is not known.
// Wine says that it is not written yet, which Go takes for an error.
static NTSTATUS NTAPI set_file(HANDLE file, PIO_STATUS_BLOCK io, PVOID value, ULONG size, int property)
{
    const int disposition_ex = 64;
    const NTSTATUS not_written = 0xc0000002, not_known = 0xc0000003;
    NTSTATUS status = wine_set_file(file, io, value, size, property);

    return property == disposition_ex && status == not_written ? not_known : status;
}

// find stands in for GetProcAddress.
static FARPROC WINAPI find(HMODULE module, LPCSTR name)
{
    FARPROC found = GetProcAddress(module, name);

    if (!found || (ULONG_PTR)name <= 0xffff) // an ordinal
        return found;
    if (!strcmp(name, "WSAIoctl")) {
        wine_ioctl = (ioctl_function)(void *)found;
        return (FARPROC)(void *)ioctl;
    }
    if (!strcmp(name, "NtSetInformationFile")) {
        wine_set_file = (set_file_function)(void *)found;
        return (FARPROC)(void *)set_file;
    }
    return found;
}

// A Go program imports a few functions of kernel32 and finds all others by GetProcAddress, which is one of
// the few: it calls what the slot for it in its table of imports says.
static void take_over_lookups(void)
{
    BYTE *program = (BYTE *)GetModuleHandleW(NULL);
    IMAGE_NT_HEADERS *headers = (IMAGE_NT_HEADERS *)(program + ((IMAGE_DOS_HEADER *)program)->e_lfanew);
    IMAGE_DATA_DIRECTORY imports = headers->OptionalHeader.DataDirectory[IMAGE_DIRECTORY_ENTRY_IMPORT];
    IMAGE_IMPORT_DESCRIPTOR *from = (IMAGE_IMPORT_DESCRIPTOR *)(program + imports.VirtualAddress);
    void *original = (void *)GetProcAddress(GetModuleHandleW(L"kernel32.dll"), "GetProcAddress");

    for (; imports.Size && from->FirstThunk; from++) {
        for (void **slot = (void **)(program + from->FirstThunk); *slot; slot++) {
            DWORD access;
            if (*slot == original && VirtualProtect(slot, sizeof *slot, PAGE_READWRITE, &access)) {
                *slot = (void *)find;
                VirtualProtect(slot, sizeof *slot, access, &access);
            }
        }
    }
}

BOOL WINAPI DllMain(HINSTANCE module, DWORD reason, LPVOID reserved)
{
    (void)module, (void)reserved;
    if (reason == DLL_PROCESS_ATTACH)
        take_over_lookups();
    return TRUE;
}
