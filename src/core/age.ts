/** How long ago a time was, for people: `now`, `45 s ago`, `3 min ago`, `2 h ago`, `12 d ago`. */
export function formatAge(time: Date, now = Date.now()): string {
  const seconds = Math.floor((now - time.getTime()) / 1000);
  if (seconds < 1) return 'now';
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 172_800) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86_400)} d ago`;
}
