package report

import "fmt"

// takes reports whether the workers took a primitive: it was chosen, or mixed was.
func (r *Report) takes(primitive string) bool {
	return r.Primitive == primitive || r.Primitive == "mixed"
}

// alone returns a line for each chosen primitive that the workers never held as it is meant to be: several names
// or holders at once.
func (r *Report) alone() (why []string) {
	t := r.Findings.Together
	if r.Primitive == "sets" && t.Sets == 0 {
		why = append(why, "nobody acquired several names")
	}
	if r.takes("shared") && t.MostReaders < 2 {
		why = append(why, "no two readers held a lock at once")
	}
	if r.takes("permits") && t.MostPermits < 2 {
		why = append(why, "no two permits were held at once")
	}
	return why
}

// together returns the lines of the summary about sets, readers and permits.
func (r *Report) together() (rows []row) {
	t := r.Findings.Together
	if t.Sets > 0 {
		rows = append(rows, row{"sets", fmt.Sprint(t.Sets), "acquisitions of several names; the judge takes each name as a lock"})
	}
	if t.Readers > 0 {
		rows = append(rows, row{"readers", fmt.Sprint(t.Readers), fmt.Sprintf("acquisitions for reading, by up to %d readers of one lock at a time", t.MostReaders)})
	}
	if t.Permits > 0 {
		rows = append(rows, row{"permits", fmt.Sprint(t.Permits), fmt.Sprintf("acquisitions of a permit, up to %d of all locks at a time; the judge takes each slot as a lock", t.MostPermits)})
	}
	return rows
}
