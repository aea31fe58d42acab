import { FORM_FIELDS, FORM_KINDS, type FormField, type FormValues } from '../automation-form.ts';

interface AutomationFormProps {
  /** Where the form is sent to. */
  action: string;
  values: FormValues;
  /** One sentence for each input with something wrong. */
  problems: ReadonlyMap<string, string>;
  /** What is wrong besides. */
  problem?: string | undefined;
  /** Slug of the automation that is edited; a new one is given its slug in the form. */
  slug?: string | undefined;
  /** Identifies what the operator has seen, so that nobody else's change is overwritten. */
  seen?: string | undefined;
}

/** Creates or changes an automation. It works without script: of the types of actions, only the chosen one counts. */
export function AutomationForm({ action, values, problems, problem, slug, seen }: AutomationFormProps) {
  const chosen = values.get('type');
  const field = (each: FormField) => (
    <Field
      key={each.input}
      field={each}
      value={values.get(each.input) ?? ''}
      problem={problems.get(each.input)}
    />
  );
  return (
    <form class="form" method="post" action={action} autocomplete="off">
      <h1>{slug === undefined ? 'New automation' : `Edit ${slug}`}</h1>
      <p class="warning">
        To create a command is to execute code on the workers: what you save here runs there with the workers'
        rights, whenever somebody who has the key starts it. That is why only admins see this form.
      </p>
      {(problems.size > 0 || problem !== undefined) && (
        <p class="reason" role="alert">
          <b>Nothing was saved.</b> {problem ?? 'What you typed is still here. Please look at:'}{' '}
          {[...problems.keys()].map((input) => (
            <a key={input} class="wrong" href={`#${input}`}>
              {labelOf(input)}
            </a>
          ))}
        </p>
      )}
      {seen !== undefined && <input type="hidden" name="seen" value={seen} />}
      {slug === undefined && (
        <div class="field code">
          <label for="slug">Slug</label>
          <input
            id="slug"
            name="slug"
            value={values.get('slug') ?? ''}
            class="short"
            required
            maxLength={64}
            autocapitalize="none"
            spellcheck={false}
            {...described('slug', problems.get('slug'))}
          />
          <span class="hint" id="hint-slug">
            Its name in the URL: lower-case words joined by hyphens, such as nightly-report. It never changes.
          </span>
          <Wrong input="slug" problem={problems.get('slug')} />
        </div>
      )}
      <fieldset id="type">
        <legend>What it does</legend>
        <Wrong input="type" problem={problems.get('type')} />
        {FORM_KINDS.map(({ type, noun, fields }) => (
          <div key={type} class="kind">
            <label>
              <input type="radio" name="type" value={type} checked={type === chosen} /> {TITLES[type] ?? noun}
            </label>
            <div class="kind-fields">{fields.map(field)}</div>
          </div>
        ))}
      </fieldset>
      {FORM_FIELDS.map(field)}
      <div class="actions">
        <button class="btn main" type="submit">
          {slug === undefined ? 'Create and show its key' : 'Save'}
        </button>
        <a class="btn" href={slug === undefined ? '/automations' : `/automations/${slug}`}>
          Cancel
        </a>
      </div>
    </form>
  );
}

/** What people call an input. */
function labelOf(input: string): string {
  const fields = [...FORM_KINDS.flatMap((kind) => kind.fields), ...FORM_FIELDS];
  const other: Readonly<Record<string, string>> = { slug: 'Slug', type: 'What it does' };
  return fields.find((each) => each.input === input)?.label ?? other[input] ?? input;
}

/** Texts of a few characters. */
const SHORT = ['timeout', 'rate'];

/** What an action of a type does. */
const TITLES: Readonly<Record<string, string>> = {
  command: 'Run a command',
  agent: 'Have an AI agent work on something',
  http: 'Deliver the payload to a URL',
};

function Field({ field, value, problem }: { field: FormField; value: string; problem: string | undefined }) {
  const { input, label, hint, control } = field;
  if (control === 'flag') {
    return (
      <div class="field check">
        <input
          id={input}
          name={input}
          type="checkbox"
          checked={value !== ''}
          {...described(input, problem)}
        />{' '}
        <label for={input}>{label}</label>
        <span class="hint" id={`hint-${input}`}>
          {hint}
        </span>
        <Wrong input={input} problem={problem} />
      </div>
    );
  }
  return (
    <div class={`field ${control === 'area' ? '' : 'code'}`}>
      <label for={input}>{label}</label>
      <Control field={field} value={value} problem={problem} />
      <span class="hint" id={`hint-${input}`}>
        {hint}
      </span>
      <Wrong input={input} problem={problem} />
    </div>
  );
}

function Control({
  field,
  value,
  problem,
}: {
  field: FormField;
  value: string;
  problem: string | undefined;
}) {
  const { input, control, choices, default: preset } = field;
  const common = {
    ...{ id: input, name: input, spellcheck: false, autocapitalize: 'none' as const },
    ...described(input, problem),
  };
  switch (control) {
    case 'choice':
      return (
        <select {...common}>
          {choices.map((choice) => (
            <option key={choice} value={choice === preset ? '' : choice} selected={choice === value}>
              {choice}
            </option>
          ))}
        </select>
      );
    case 'area':
      return <textarea {...common} spellcheck rows={8} value={value} />;
    case 'json':
    case 'lines':
      return (
        <textarea {...common} rows={Math.min(20, Math.max(3, value.split('\n').length))} value={value} />
      );
    case 'words':
      return <textarea {...common} rows={Math.min(6, Math.ceil((value.length + 1) / 80))} value={value} />;
    default:
      return (
        <input
          {...common}
          value={value}
          placeholder={preset}
          class={control === 'number' || SHORT.includes(field.field) ? 'short' : undefined}
        />
      );
  }
}

function described(input: string, problem: string | undefined) {
  if (problem === undefined) return { 'aria-describedby': `hint-${input}` };
  return { 'aria-describedby': `wrong-${input} hint-${input}`, 'aria-invalid': 'true' as const };
}

function Wrong({ input, problem }: { input: string; problem: string | undefined }) {
  if (problem === undefined) return null;
  return (
    <span class="wrong" id={`wrong-${input}`}>
      {problem}
    </span>
  );
}
