# Pin it by its digest for images that can be rebuilt bit by bit: --build-arg NODE_IMAGE=node:24-bookworm-slim@sha256:…
ARG NODE_IMAGE=node:24-bookworm-slim

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

FROM ${NODE_IMAGE}
# Process 1: it ends node when a signal comes before node listens to signals, and reaps what commands leave behind.
RUN apt-get update \
  && apt-get install --yes --no-install-recommends tini \
  && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt /var/log/dpkg.log
# A container is reached through its own address, not through its loopback interface; the ops listener stays there.
ENV NODE_ENV=production HOST=0.0.0.0 OPS_PORT=9464
WORKDIR /app
COPY package.json ./
COPY --from=production-dependencies /app/node_modules ./node_modules
COPY --from=build /app/dist ./dist
COPY openapi ./openapi
RUN ln -s /app/dist/orc.js /usr/local/bin/orc
# By number, so that Kubernetes sees that it is not root. Nothing but /tmp is written to.
USER 1000:1000
EXPOSE 3000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=3 \
  CMD ["node", "-e", "fetch(`http://127.0.0.1:${process.env.OPS_PORT}/ready`).then(({ ok }) => process.exit(ok ? 0 : 1), () => process.exit(1))"]
ENTRYPOINT ["tini", "--", "node", "--max-semi-space-size=8", "--v8-pool-size=2", "--no-allocation-site-pretenuring", "--no-memory-reducer", "dist/orc.js"]
CMD ["api"]
