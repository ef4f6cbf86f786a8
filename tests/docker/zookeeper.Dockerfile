# ZooKeeper from Debian's package, for machines that reach no registry of images: the same command, folders and port as
# the official image, so that the compose files need not know.
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
RUN apt-get update \
    && apt-get install --yes --no-install-recommends default-jre-headless zookeeper \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* \
    && mkdir -p /data /datalog \
    && printf '%s\n' dataDir=/data dataLogDir=/datalog clientPort=2181 tickTime=2000 admin.enableServer=false > /etc/zookeeper/conf/zoo.cfg \
    && printf '#!/bin/sh\nexec /usr/share/zookeeper/bin/zkServer.sh "$@"\n' > /usr/local/bin/zkServer.sh \
    && chmod 755 /usr/local/bin/zkServer.sh
ENV JVMFLAGS=-Xmx128m
VOLUME /data /datalog
EXPOSE 2181
CMD ["zkServer.sh", "start-foreground"]
