import type { FastifyPluginCallback, FastifyRequest } from 'fastify';
import { type Config, parseHeaders } from '../config.ts';
import { withDeadline } from '../core/deadline.ts';
import { errorText } from '../core/error-record.ts';
import type { TraceContext } from '../core/run.ts';
import { type Logger, limitRepeats, loggablePath } from '../logger.ts';
import type { QueueTelemetry } from '../store/queue.ts';

/** Time for the last spans to be sent at the end, in milliseconds. */
const CLOSE_MS = 2000;

/** What a trace is made of in both kinds of process: a span for each request, and one for each attempt at a run. */
export interface Tracing {
  /** Makes the spans of requests; they continue the trace that a request's `traceparent` names. */
  requests: FastifyPluginCallback;
  /** Makes the spans of attempts; they continue the trace of the request. */
  runs: QueueTelemetry;
  /** What continues a request's trace; undefined when it has no span. */
  contextOf(request: FastifyRequest): TraceContext | undefined;
  /** What continues the trace of the attempt that this is called in; undefined when it has no span. */
  context(): TraceContext | undefined;
  /** Sends what is left. */
  close(): Promise<void>;
}

/**
 * Starts sending traces as the `OTEL_…` variables say, which OpenTelemetry reads itself.
 *
 * @throws when packages are missing
 */
export async function startTracing(
  process: 'api' | 'worker' | 'console',
  { version, OTEL_EXPORTER_OTLP_PROTOCOL: protocol, OTEL_EXPORTER_OTLP_HEADERS }: Config,
  logger: Logger,
): Promise<Tracing> {
  const { api, node, resources, exporters, BullMQOtel, FastifyOtelInstrumentation } = await loadPackages();
  const { context, diag, DiagLogLevel, propagation, SpanKind } = api;
  const { defaultResource, detectResources, envDetector, resourceFromAttributes } = resources;
  const report = limitRepeats(({ message: reason }, count) =>
    logger.warn({ reason: errorText(reason), count }, 'traces cannot be sent'),
  );
  const onError = (message: string) => report(new Error(message));
  const silent = () => undefined;
  const diagLogger = { error: onError, warn: silent, info: silent, debug: silent, verbose: silent };
  diag.setLogger(diagLogger, DiagLogLevel.ERROR);

  const provider = new node.NodeTracerProvider({
    resource: defaultResource()
      .merge(resourceFromAttributes({ 'service.name': `orc-${process}`, 'service.version': version }))
      .merge(detectResources({ detectors: [envDetector] })),
    spanProcessors: [
      new node.BatchSpanProcessor(
        new exporters[protocol]({ headers: parseHeaders(OTEL_EXPORTER_OTLP_HEADERS) }),
      ),
    ],
  });
  provider.register();

  const instrumentation = new FastifyOtelInstrumentation({
    instrumentHooks: false,
    instrumentHandler: false,
    recordExceptions: false,
    // A path may hold anything, a key that was put into the wrong place included.
    requestHook: (span, { url }) => void span.setAttribute('url.path', loggablePath(url)),
  });
  const { tracer, contextManager } = new BullMQOtel({ tracerName: 'orc', version });
  return {
    requests: instrumentation.plugin(),
    runs: {
      contextManager,
      // Besides, BullMQ has spans for what it does to find work, day and night.
      tracer: {
        startSpan: (name, options, parent) =>
          options?.kind === SpanKind.CONSUMER ? tracer.startSpan(name, options, parent) : NO_SPAN,
      },
    },
    contextOf: (request) => {
      const { instrumented, inject } = request.opentelemetry();
      const carrier: TraceContext = {};
      if (instrumented) inject(carrier);
      return contextIn(carrier);
    },
    context: () => {
      const carrier: TraceContext = {};
      propagation.inject(context.active(), carrier);
      return contextIn(carrier);
    },
    close: async () => {
      await withDeadline(provider.shutdown(), CLOSE_MS).catch((error: Error) => onError(error.message));
    },
  };
}

/** OpenTelemetry's variables may name other ways to hand a trace on, which are no business of a run. */
function contextIn({ traceparent, tracestate }: TraceContext): TraceContext | undefined {
  if (traceparent === undefined) return undefined;
  return { traceparent, ...(tracestate !== undefined && { tracestate }) };
}

async function loadPackages() {
  try {
    const [api, node, resources, json, protobuf, { BullMQOtel }, { FastifyOtelInstrumentation }] =
      await Promise.all([
        import('@opentelemetry/api'),
        import('@opentelemetry/sdk-trace-node'),
        import('@opentelemetry/resources'),
        import('@opentelemetry/exporter-trace-otlp-http'),
        import('@opentelemetry/exporter-trace-otlp-proto'),
        import('bullmq-otel'),
        import('@fastify/otel'),
      ]);
    const exporters = { 'http/json': json.OTLPTraceExporter, 'http/protobuf': protobuf.OTLPTraceExporter };
    return { api, node, resources, exporters, BullMQOtel, FastifyOtelInstrumentation };
  } catch (cause) {
    const names =
      '@fastify/otel bullmq-otel @opentelemetry/sdk-trace-node @opentelemetry/resources @opentelemetry/exporter-trace-otlp-http @opentelemetry/exporter-trace-otlp-proto';
    const message = `OTEL_EXPORTER_OTLP_ENDPOINT needs packages that are not installed: npm install --save-prod ${names}`;
    throw new Error(message, { cause });
  }
}

const NO_SPAN: ReturnType<QueueTelemetry['tracer']['startSpan']> = {
  setSpanOnContext: (context) => context,
  setAttribute: () => undefined,
  setAttributes: () => undefined,
  addEvent: () => undefined,
  recordException: () => undefined,
  end: () => undefined,
};
