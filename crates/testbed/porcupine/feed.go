package main

import (
	"fmt"
	"slices"
	"strings"
)

// feed is one answer of the feed of changes: everything after one position up to another.
type feed struct {
	Process int    `json:"process"`
	Surface string `json:"surface"`
	From    uint64 `json:"from"`
	To      uint64 `json:"to"`
	// The process was started since the answer before: its history has only the last change of each item, and it may have told
	// its client to start over.
	Restarted bool   `json:"restarted"`
	StartOver bool   `json:"start_over"`
	Lines     []line `json:"lines"`
}

type line struct {
	Serial  uint64 `json:"serial"`
	Type    string `json:"type"`
	Kind    string `json:"kind"`
	Index   string `json:"index"`
	Project string `json:"project"`
	Name    string `json:"name"`
	Version int    `json:"version"`
}

// key is the key of the history that a line is about, and the name there.
func (l line) key() (key, name string) {
	switch first, last, _ := strings.Cut(l.Name, "/"); {
	case l.Type == "index":
		return "index/" + strings.TrimPrefix(last, "set"), ""
	case l.Project != "":
		_, name, _ = strings.Cut(l.Index, "/")
		return "project/" + strings.TrimPrefix(l.Project, "p"), name
	case l.Type == "project":
		_, name, _ = strings.Cut(l.Index, "/")
		return "project/" + strings.TrimPrefix(l.Name, "p"), name
	case first == "tok":
		return "token/" + strings.TrimPrefix(last, "t"), ""
	default:
		return "article/" + strings.TrimPrefix(first, "f"), last
	}
}

func surfaceOf(o *op) string {
	switch {
	case o.kind() == "project" || o.kind() == "index":
		return "python"
	case o.kind() == "article" || o.F == "use":
		return "articles"
	}
	return ""
}

// checkFeeds compares what each process told its follower with the history: nothing is missing, and nothing came from nowhere.
func (h *history) checkFeeds() (lines int, wrong []string) {
	bad := collect(&wrong)
	bySerial, unanswered := map[uint64][]*op{}, map[string][]*op{}
	for _, o := range h.ops {
		switch {
		case o.isRead():
		case !o.isKnown():
			unanswered[o.Key] = append(unanswered[o.Key], o)
		case o.isDone():
			bySerial[o.Serial] = append(bySerial[o.Serial], o)
		}
	}

	type follower struct {
		process int
		surface string
	}
	all := map[follower][]*feed{}
	var followers []follower
	for _, f := range h.feeds {
		who := follower{f.Process, f.Surface}
		if all[who] == nil {
			followers = append(followers, who)
		}
		all[who] = append(all[who], f)
	}

	// Serials of writes without an answer, by key: each such write is one commit at most.
	found := map[string]map[uint64]bool{}
	for _, f := range h.feeds {
		begun := all[follower{f.Process, f.Surface}][0].From
		for _, l := range f.Lines {
			lines++
			if l.Serial <= begun {
				// Whoever starts over gets what was made before the clients began.
				continue
			}
			key, _ := l.key()
			if l.Serial <= f.From && !f.StartOver || l.Serial > f.To {
				bad("the feed of process %d has a line outside of (%d, %d]: %+v", f.Process, f.From, f.To, l)
			}
			// A push that changed nothing names the serial of somebody else's commit.
			acknowledged := bySerial[l.Serial]
			if slices.ContainsFunc(acknowledged, func(o *op) bool { return o.Key == key && fits(l, o, o.Version) }) {
				continue
			}
			if f.Restarted && l.Type == "attachment" {
				// After a restart it may come under another serial.
				continue
			}
			if at := slices.IndexFunc(acknowledged, (*op).commits); at >= 0 {
				bad("the feed of process %d has a line of a commit that was another: %+v\n  %s", f.Process, l, acknowledged[at])
				continue
			}
			if !slices.ContainsFunc(unanswered[key], func(o *op) bool { return fits(l, o, o.Base+1) }) {
				bad("the feed of process %d has a change that nobody asked for: %+v", f.Process, l)
				continue
			}
			if found[key] == nil {
				found[key] = map[uint64]bool{}
			}
			found[key][l.Serial] = true
			if len(found[key]) > len(unanswered[key]) {
				bad("the feed has %d commits of %s beyond those acknowledged, and %d calls had no answer",
					len(found[key]), key, len(unanswered[key]))
			}
		}
	}

	for _, who := range followers {
		wrong = append(wrong, h.missing(who.process, who.surface, all[who])...)
	}
	return lines, wrong
}

// missing names what one follower was not told.
func (h *history) missing(process int, surface string, feeds []*feed) (wrong []string) {
	bad := collect(&wrong)
	type change struct {
		serial uint64
		key    string
	}
	told, latest := map[change]bool{}, map[string]uint64{}
	from, to := feeds[0].From, feeds[len(feeds)-1].To
	gap := func(uint64) *feed { return nil }
	for at, f := range feeds {
		if at > 0 && f.From != feeds[at-1].To && !f.StartOver {
			bad("the follower of process %d went on from %d, and not from %d", process, f.From, feeds[at-1].To)
		}
		for _, l := range f.Lines {
			key, _ := l.key()
			told[change{l.Serial, key}] = true
			latest[key] = max(latest[key], l.Serial)
		}
		if before := gap; f.Restarted {
			gap = func(serial uint64) *feed {
				if serial > f.From && serial <= f.To {
					return f
				}
				return before(serial)
			}
		}
	}
	// A process that was behind reads only the last of several changes of an item, and tells of all that it read in one answer.
	isLater := func(o *op) bool {
		for _, f := range feeds {
			if f.From < o.Serial && o.Serial <= f.To {
				return slices.ContainsFunc(f.Lines, func(l line) bool { return l.Serial > o.Serial && l.isOfItem(o) })
			}
		}
		return false
	}
	// What came and went before a process read of it leaves no trace there: a file, or a yank that was taken back or whose release was deleted.
	isPassing := func(o *op) bool {
		for _, f := range feeds {
			if f.From < o.Serial && o.Serial <= f.To {
				return slices.ContainsFunc(h.ops, func(other *op) bool {
					return other.undoes(o) && other.mayBeWithin(o.Serial, f.To) ||
						// A release that was only yanked there was known, and its deletion is told.
						o.undoes(other) && other.F != "yank" && other.mayBeWithin(f.From, o.Serial)
				})
			}
		}
		return false
	}
	for _, o := range h.ops {
		if !o.isDone() || !o.commits() || surfaceOf(o) != surface || o.Serial <= from || o.Serial > to {
			continue
		}
		if told[change{o.Serial, o.Key}] || h.isFleet && (isLater(o) || isPassing(o)) {
			continue
		}
		if f := gap(o.Serial); f != nil && (f.StartOver || latest[o.Key] > o.Serial) {
			continue
		}
		bad("the feed of process %d lacks a write: %s", process, o)
	}
	return wrong
}

// undoes says whether a call takes away what another one brought.
func (o *op) undoes(other *op) bool {
	if other.Key != o.Key || other.Member != o.Member {
		return false
	}
	switch o.F {
	case "delete":
		return (other.F == "upload" || other.F == "yank") && other.Name == o.Name || other.F == "push" && o.Name == "final"
	case "unyank":
		return other.F == "yank" && other.Name == o.Name
	}
	return false
}

// mayBeWithin says whether the commit of a call may be one of (from, to].
func (o *op) mayBeWithin(from, to uint64) bool {
	return !o.isKnown() || o.isDone() && from < o.Serial && o.Serial <= to
}

// isOfItem says whether a line is about what a call changed.
func (l line) isOfItem(o *op) bool {
	key, name := l.key()
	if key != o.Key || o.kind() == "project" && name != o.Name {
		return false
	}
	isFile := l.Type == "file" && strings.HasSuffix(l.Name, fmt.Sprintf("-%d.zip", o.Member))
	isRelease := l.Type == "release" && l.Name == fmt.Sprint(o.Member)
	switch o.F {
	case "upload":
		return isFile
	case "yank":
		return isRelease
	case "delete":
		// If it was uploaded again, only its file may be another.
		return isRelease || isFile
	case "write", "rename", "attach":
		return name == o.Name
	}
	return true
}

// fits says whether a call can have made a line, if the version that it made is this one.
func fits(l line, o *op, version int) bool {
	_, name := l.key()
	switch l.Type {
	case "article":
		switch o.F {
		case "rename":
			return l.Kind == "removed" && name == o.Name || l.Kind == "added" && name == o.To && l.Version == version
		case "write":
			return l.Kind != "removed" && name == o.Name && l.Version == version
		}
		return o.F == "use" && l.Kind != "removed" && l.Version == version
	case "attachment":
		// A process that was behind reads an added file and the new name of its article at once.
		return o.F == "attach" && name == o.Name || o.F == "rename" && name == o.To
	case "index":
		return o.F == "add" || o.F == "take"
	}
	return o.kind() == "project" && (name == o.Name && o.F != "push" || name == "final" && o.F == "push")
}
