/** A reading that everybody who asks for it at the same time shares, so that many watchers cost Redis no more than one. */
export interface Reading<T> {
  value: T;
  readAt: Date;
}

interface Ages {
  /** An older reading is renewed when it is asked for, in milliseconds. */
  freshMs: number;
  /** An older one is not shown any more, in milliseconds. */
  usableMs: number;
}

/** What takes long to read. Whoever asks gets the latest reading at once, unless it is too old. */
export class SharedReading<T> {
  readonly #read: () => Promise<T>;
  readonly #ages: Ages;
  #latest: Reading<T> | undefined;
  #reading: Promise<Reading<T>> | undefined;

  constructor(read: () => Promise<T>, ages: Ages) {
    this.#read = read;
    this.#ages = ages;
  }

  /** @throws what the reading throws, when there is none to show */
  async get(): Promise<Reading<T>> {
    const age = this.#latest ? Date.now() - this.#latest.readAt.getTime() : Number.POSITIVE_INFINITY;
    if (this.#latest && age <= this.#ages.freshMs) return this.#latest;
    const reading = this.#renew();
    if (!this.#latest || age > this.#ages.usableMs) return reading;
    // The next one to ask is told of the failure.
    reading.catch(() => undefined);
    return this.#latest;
  }

  /** The next one to ask gets what is true from now on. */
  forget(): void {
    this.#latest = undefined;
    this.#reading = undefined;
  }

  #renew(): Promise<Reading<T>> {
    if (this.#reading !== undefined) return this.#reading;
    const reading = this.#read().then((value) => ({ value, readAt: new Date() }));
    this.#reading = reading;
    const finish = (latest?: Reading<T>) => {
      // It may have been forgotten in the meantime.
      if (this.#reading !== reading) return;
      this.#reading = undefined;
      this.#latest = latest ?? this.#latest;
    };
    reading.then(finish, () => finish());
    return reading;
  }
}
