/** What a chart is made of. */
export interface Line {
  name: string;
  colour: string;
  /** Drawn faintly: what a restart went back behind, or what was not smoothed. */
  faint?: boolean;
  /** Indexes of the two columns of `data` between which it is filled. */
  band?: [number, number];
  hidden?: boolean;
}

export interface Range {
  start: number;
  stop: number;
}

/** A vertical line at a place of the axis. */
export interface Mark {
  x: number;
  name: string;
  colour: string;
}

/** A shaded part of the axis. */
export interface Stretch extends Range {
  colour: string;
}
