package report

import "fmt"

// takes reports whether the workers took something, by what was chosen.
func (r *Report) takes(primitive string) bool {
	return r.Primitive == primitive || r.Primitive == "mixed"
}

// alone says what of the primitives was not seen at work.
func (r *Report) alone() (why []string) {
	t := r.Findings.Together
	if r.Primitive == "sets" && t.Sets == 0 {
		why = append(why, "nobody acquired several names")
	}
	if r.takes("shared") && t.MostReaders < 2 {
		why = append(why, "no two readers had a lock at once")
	}
	if r.takes("permits") && t.MostPermits < 2 {
		why = append(why, "no two permits were held at once")
	}
	return why
}

// together are the lines of the summary for what is more than locks of one name.
func (r *Report) together() (rows []row) {
	t := r.Findings.Together
	if t.Sets > 0 {
		rows = append(rows, row{"sets", fmt.Sprint(t.Sets), "acquisitions of several names, each of which is judged as a lock"})
	}
	if t.Readers > 0 {
		rows = append(rows, row{"readers", fmt.Sprint(t.Readers), fmt.Sprintf("acquisitions for reading, up to %d of one lock at a time", t.MostReaders)})
	}
	if t.Permits > 0 {
		rows = append(rows, row{"permits", fmt.Sprint(t.Permits), fmt.Sprintf("acquisitions of a permit, up to %d of all locks at a time; each slot is judged as a lock", t.MostPermits)})
	}
	return rows
}
