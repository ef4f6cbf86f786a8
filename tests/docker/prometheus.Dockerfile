# Prometheus out of Debian's package, for machines that reach no registry of images: the same command, folders, port and
# user as the official image, so that the compose file need not know.
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
RUN apt-get update \
    && cd /tmp && apt-get download -o APT::Sandbox::User=root prometheus \
    && dpkg-deb --extract prometheus_*.deb unpacked \
    && mv unpacked/usr/bin/prometheus unpacked/usr/bin/promtool /bin/ \
    && rm -rf /tmp/* /var/lib/apt/lists/* /var/cache/apt/* \
    && mkdir /prometheus && chown nobody:nogroup /prometheus
USER nobody
EXPOSE 9090
VOLUME /prometheus
WORKDIR /prometheus
ENTRYPOINT ["/bin/prometheus"]
CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]
