import { type RequestListener, Server, type ServerOptions } from 'node:http';

/**
 * Node's HTTP server, with the two things about connections that no option of it says. Without them, clients are reset during
 * shutdown, and a client that closes its side behind a request has that run and gets no answer.
 */
export class ApiServer extends Server {
  /** `net.Server` documents `allowHalfOpen`; what makes `http.Server` go on, too, is not documented. */
  readonly httpAllowHalfOpen = true;

  constructor(options: ServerOptions, listener: RequestListener) {
    super(options, listener);
    // Node would silently drop what comes after 2,000 headers; their size is limited anyway.
    this.maxHeadersCount = 0;
  }

  /** `close()` calls it, and so would cut connections whose next request is on its way. `Drain` closes the idle ones. */
  override closeIdleConnections(): void {}
}
