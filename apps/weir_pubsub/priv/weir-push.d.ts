/** Where to begin: with the next message, the oldest that is kept, the latest N, or after the message with an id. */
export type From = 'new' | 'oldest' | number | string;

export type Transport = 'websocket' | 'stream' | 'poll';

export interface Message {
  channel: string;
  id: string;
  /** Bytes if it is not text. */
  data: string | Uint8Array;
  /** Not with long polls. */
  event?: string;
  /** Not with event streams. */
  contentType?: string;
}

export interface Gap {
  channel: string;
  /** How many messages are missing; null if that is unknown. */
  missed: number | null;
  id: string;
}

export interface Handlers {
  message?(message: Message): void;
  gap?(gap: Gap): void;
  /** The channel was deleted, and the subscription has ended with it. */
  closed?(closed: { channel: string; reason: 'deleted' | 'slow' }): void;
  /** The subscription was refused, or it was ended because the client lagged behind (code `slow`). */
  error?(error: PushError): void;
}

export class PushError extends Error {
  /**
   * offline, unsupported, forbidden, limit, too_large, too_many, no_channel, no_presence, slow, subscribed,
   * bad_request, unavailable
   */
  code: string;
}

export interface Options {
  /** A JSON Web Token. It is sent in the query, because a page cannot set header fields of a WebSocket handshake. */
  token?: string;
  transports?: Transport[];
  /** Milliseconds. */
  openTimeout?: number;
  pingInterval?: number;
  pingTimeout?: number;
  minDelay?: number;
  maxDelay?: number;
  restartDelay?: number;
  fetch?: typeof fetch;
  WebSocket?: unknown;
  state?(state: 'connecting' | 'open' | 'waiting' | 'closed', transport: Transport | null): void;
}

export interface Push {
  readonly transport: Transport | null;
  subscribe(
    channel: string,
    handlers: Handlers,
    options?: { from?: From; info?: unknown },
  ): { channel: string; unsubscribe(): void };
  publish(
    channel: string,
    data: string | Uint8Array,
    options?: { event?: string; contentType?: string },
  ): Promise<{ channel: string; id: string; subscribers: number }>;
  /** Only with a WebSocket. */
  history(
    channel: string,
    options?: { from?: From; limit?: number },
  ): Promise<{ messages: Message[]; missed: number | null; id: string; last_id: string }>;
  /** Only with a WebSocket. */
  presence(channel: string): Promise<{ info: unknown; age: number }[]>;
  close(): void;
}

/** Connects to the server of a URL, by default that of the page, and reconnects until it is closed. */
export function connect(url?: string | URL, options?: Options): Push;
