/** Makes the script load the page again every few seconds and replace what is marked `data-part`; it says here whether it can. */
export function Refreshed() {
  return <span class="live quiet" data-refresh />;
}
