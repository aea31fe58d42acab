# For reproducible images, add the digest: --build-arg NODE_IMAGE=node:24.20.0-bookworm-slim@sha256:…
ARG NODE_IMAGE=node:24.20.0-bookworm-slim

FROM ${NODE_IMAGE} AS base
WORKDIR /app
COPY package.json package-lock.json .npmrc ./

FROM base AS build
RUN npm ci
COPY tsconfig.json rolldown.config.ts ./
COPY src ./src
RUN npm run build && rm -r dist/build

FROM base AS production-dependencies
RUN npm ci --omit=dev

FROM ${NODE_IMAGE} AS orc
# tini is process 1: it ends node when a signal comes before node handles signals, and reaps processes that commands leave.
# A process whose binary its user may not read belongs to root in /proc, so commands cannot read the environment and memory
# of the worker and of tini. Commands use the ordinary node on the PATH. git, with HTTPS and SSH, is for the worker's checkouts.
RUN apt-get update \
  && apt-get install --yes --no-install-recommends ca-certificates git openssh-client tini \
  && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt /var/log/dpkg.log \
  && chmod 711 /usr/bin/tini \
  && install -D --mode=711 "$(command -v node)" /usr/local/lib/orc/node \
  && useradd --uid 1001 --user-group --no-create-home --home-dir /tmp orc-worker
# Callers reach a container through its own address; the ops listener stays on the loopback interface.
ENV NODE_ENV=production HOST=0.0.0.0 CONSOLE_HOST=0.0.0.0 OPS_PORT=9464
WORKDIR /app
COPY package.json ./
COPY --from=production-dependencies /app/node_modules ./node_modules
COPY --from=build /app/dist ./dist
COPY openapi ./openapi
RUN sed --in-place '1s,.*,#!/usr/local/lib/orc/node,' dist/orc.js && ln -s /app/dist/orc.js /usr/local/bin/orc
# The user of the API and the console; the worker runs as 1001:1001. A number lets Kubernetes verify that it is not root. All write only to /tmp.
USER 1000:1000
EXPOSE 3000 3001
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=3 \
  CMD ["/usr/local/lib/orc/node", "-e", "fetch(`http://127.0.0.1:${process.env.OPS_PORT}/ready`).then(({ ok }) => process.exit(ok ? 0 : 1), () => process.exit(1))"]
ENTRYPOINT ["tini", "--", "/usr/local/lib/orc/node", "--min-semi-space-size=8", "--max-semi-space-size=8", "--no-maglev", "dist/orc.js"]
CMD ["api"]

# For docs/agents/compose.yaml: what the workers of agents reach the world through.
FROM ${NODE_IMAGE} AS proxy
RUN apt-get update && apt-get install --yes --no-install-recommends tinyproxy-bin && rm -rf /var/lib/apt/lists/*
USER 1002:1002
ENTRYPOINT ["tinyproxy", "-d", "-c", "/etc/orc-proxy/tinyproxy.conf"]

# A worker with an agent: --target agents --build-arg AGENT=…, a package of npm.
FROM orc AS agents
ARG AGENT=opencode-ai@1.18.33
USER 0:0
RUN npm install --global --no-audit --no-fund "$AGENT" \
  && rm -rf /root/.npm \
  && install --directory --owner=1001 --group=1001 --mode=700 /var/lib/orc
ENV WORKSPACE_DIR=/var/lib/orc
USER 1001:1001
CMD ["worker"]

# Without a target: API, console and worker.
FROM orc
