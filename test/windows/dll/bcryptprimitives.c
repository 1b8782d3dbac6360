// bcryptprimitives.dll for wine 8.0, which has none. Go's runtime loads it before it does
// anything else, for ProcessPrng.
//
// Since it is in every Go program, it also mends what else Go misses in wine:
// SIO_UDP_NETRESET, without which no UDP socket can be opened, and the right status for
// FileDispositionInformationEx, without which os.RemoveAll fails.
#define WIN32_LEAN_AND_MEAN
#include <winsock2.h>
#include <windows.h>
#include <stdint.h>
#include <winternl.h>

#define SIO_UDP_NETRESET _WSAIOW(IOC_VENDOR, 15)
#define DISPOSITION_EX 64
#define INVALID_INFO_CLASS ((NTSTATUS)0xc0000003)
#define NOT_IMPLEMENTED ((NTSTATUS)0xc0000002)

NTSTATUS NTAPI NtSetInformationFile(HANDLE, IO_STATUS_BLOCK *, void *, ULONG, FILE_INFORMATION_CLASS);

// RtlGenRandom, under the name it is exported with.
BOOLEAN NTAPI SystemFunction036(PVOID buffer, ULONG length);

__declspec(dllexport) BOOL WINAPI ProcessPrng(BYTE *data, SIZE_T length)
{
    while (length > 0) {
        ULONG n = length > 1 << 20 ? 1 << 20 : (ULONG)length;
        if (!SystemFunction036(data, n))
            return FALSE;
        data += n;
        length -= n;
    }
    return TRUE;
}

static int WINAPI ioctl(SOCKET s, DWORD code, void *in, DWORD in_size, void *out, DWORD out_size, DWORD *returned,
                        WSAOVERLAPPED *overlapped, LPWSAOVERLAPPED_COMPLETION_ROUTINE routine)
{
    if (code == SIO_UDP_NETRESET) {
        *returned = 0;
        return 0;
    }
    return WSAIoctl(s, code, in, in_size, out, out_size, returned, overlapped, routine);
}

static NTSTATUS NTAPI set_information(HANDLE h, IO_STATUS_BLOCK *io, void *data, ULONG size, FILE_INFORMATION_CLASS class)
{
    NTSTATUS status = NtSetInformationFile(h, io, data, size, class);
    return (int)class == DISPOSITION_EX && status == NOT_IMPLEMENTED ? INVALID_INFO_CLASS : status;
}

static BOOL same(const char *a, const char *b)
{
    while (*a && *a == *b)
        a++, b++;
    return *a == *b;
}

// redirect makes GetProcAddress return another function: the export table gets the address
// of a jump to it. The table has room for distances up to 4 GiB only.
static void redirect(HMODULE module, const char *name, void *to)
{
    BYTE *base = (BYTE *)module, *jump = NULL;
    IMAGE_NT_HEADERS *header = (void *)(base + ((IMAGE_DOS_HEADER *)base)->e_lfanew);
    IMAGE_EXPORT_DIRECTORY *exports = (void *)(base + header->OptionalHeader.DataDirectory[IMAGE_DIRECTORY_ENTRY_EXPORT].VirtualAddress);
    DWORD *names = (void *)(base + exports->AddressOfNames);
    DWORD *functions = (void *)(base + exports->AddressOfFunctions);
    WORD *ordinals = (void *)(base + exports->AddressOfNameOrdinals);
    uint64_t size = (header->OptionalHeader.SizeOfImage + 0xffffull) & ~0xffffull;

    for (uint64_t at = size; !jump && at < 0xf0000000; at += 0x10000)
        jump = VirtualAlloc(base + at, 12, MEM_RESERVE | MEM_COMMIT, PAGE_EXECUTE_READWRITE);
    if (!jump)
        return;
    *(uint16_t *)jump = 0xb848; // mov rax, to
    *(uint64_t *)(jump + 2) = (uintptr_t)to;
    *(uint16_t *)(jump + 10) = 0xe0ff; // jmp rax
    for (DWORD i = 0; i < exports->NumberOfNames; i++) {
        DWORD *function = &functions[ordinals[i]], old;
        if (!same((char *)base + names[i], name) || !VirtualProtect(function, sizeof *function, PAGE_READWRITE, &old))
            continue;
        *function = (DWORD)(jump - base);
        VirtualProtect(function, sizeof *function, old, &old);
    }
}

BOOL WINAPI DllMain(HINSTANCE self, DWORD reason, void *reserved)
{
    (void)self, (void)reserved;
    if (reason == DLL_PROCESS_ATTACH) {
        redirect(GetModuleHandleW(L"ws2_32.dll"), "WSAIoctl", (void *)ioctl);
        redirect(GetModuleHandleW(L"ntdll.dll"), "NtSetInformationFile", (void *)set_information);
    }
    return TRUE;
}
