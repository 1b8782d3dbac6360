# The image for HostProcess containers of nodes with Windows, see docs/windows.md. BASE is an image for such
# containers that you trust; it needs to have nothing in it. No Windows is needed to build it:
#
#   docker buildx build --platform windows/amd64 --build-arg BASE=IMAGE -f deploy/windows.Dockerfile -t sluice-windows:VERSION --output type=registry dist

ARG BASE
FROM ${BASE}
# Containers find it as C:\hpc\kube-proxy.exe.
COPY kube-proxy-windows-amd64.exe kube-proxy.exe
ENTRYPOINT ["kube-proxy.exe"]
