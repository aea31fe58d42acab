/** The agent does not do what the protocol asks for; the message is a sentence about it for operators. */
export class AgentFailure extends Error {
  override name = 'AgentFailure';
  /** Whether only the connection is known to be gone: how the agent ended says more. */
  readonly isVague: boolean;

  constructor(message: string, isVague = false) {
    super(message);
    this.isVague = isVague;
  }
}
