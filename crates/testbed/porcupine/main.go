// Command porcupine judges the history of a running Larder: what several clients asked for, when, and what they were told.
//
// history (JSON lines on stdin) -> one partition for each article, project, index and token -> Porcupine with the model of that
// kind -> the checks that go across keys: serials, and the feed of changes -> a report, and the exit code.
//
// It exits with 0 if the history holds, with 1 if it does not, and with 2 if it cannot be read.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// op is one call of a client, and its answer if there was one. Times are nanoseconds since the history began.
type op struct {
	Client  int    `json:"client"`
	Process int    `json:"process"`
	Key     string `json:"key"`
	F       string `json:"f"`
	Call    int64  `json:"call"`
	// 0: there was no answer, so nobody knows whether it happened.
	Return int64 `json:"return"`

	// What was asked for: the name of an article in its family, or the index of a project; the version that a write was made
	// from; the new name; the text, title or reason; the file that a change of a file expects; the release; a member.
	Name   string `json:"name"`
	Base   int    `json:"base"`
	To     string `json:"to"`
	Text   string `json:"text"`
	Old    string `json:"old"`
	Member int    `json:"member"`
	// The serial that the client sent.
	Seen uint64 `json:"seen"`

	// The answer.
	Status  int    `json:"status"`
	Version int    `json:"version"`
	Got     string `json:"got"`
	Serial  uint64 `json:"serial"`
	// The answer says that nothing was written.
	Nothing bool `json:"nothing"`

	// How many acknowledged writes of its key come before it; and how many reads, if it is such a write itself.
	writesBefore, readsBefore int
}

func (o *op) isKnown() bool { return o.Return != 0 }

func (o *op) isDone() bool { return o.isKnown() && o.Status >= 200 && o.Status < 300 }

func (o *op) isRead() bool { return strings.HasPrefix(o.F, "read") }

// commits says whether the call, if it succeeds, always makes a commit of its own: others may find that all is as they want it.
func (o *op) commits() bool { return !o.isRead() && o.F != "unyank" && o.F != "push" }

func (o *op) kind() string { kind, _, _ := strings.Cut(o.Key, "/"); return kind }

func (o *op) String() string {
	asked := fmt.Sprintf("client %d at process %d: %s %s", o.Client, o.Process, o.F, o.Key)
	for _, part := range []struct {
		name  string
		value string
	}{{"", o.Name}, {"->", o.To}, {"text ", o.Text}, {"expecting ", o.Old}} {
		if part.value != "" {
			asked += " " + part.name + part.value
		}
	}
	if o.Base != 0 || o.F == "write" || o.F == "use" {
		asked += fmt.Sprintf(" from version %d", o.Base)
	}
	if !o.isKnown() {
		return asked + ": no answer"
	}
	answer := fmt.Sprintf(": %d at serial %d", o.Status, o.Serial)
	if o.Version != 0 {
		answer += fmt.Sprintf(", version %d", o.Version)
	}
	if o.Got != "" {
		answer += ", " + o.Got
	}
	return asked + answer
}

// history is everything that was recorded.
type history struct {
	// Several processes share the store: a read may be of a state that is older than its call.
	isFleet bool
	ops     []*op
	feeds   []*feed
	faults  map[string]int
	end     int64
}

func read(path string) (*history, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	h := &history{faults: map[string]int{}}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 64<<20)
	for number := 1; lines.Scan(); number++ {
		var line struct {
			Type  string `json:"type"`
			Fleet bool   `json:"fleet"`
			What  string `json:"what"`
		}
		err := json.Unmarshal(lines.Bytes(), &line)
		if err == nil {
			switch line.Type {
			case "store":
				h.isFleet = line.Fleet
			case "fault":
				h.faults[line.What]++
			case "op":
				o := new(op)
				err = json.Unmarshal(lines.Bytes(), o)
				h.ops = append(h.ops, o)
				h.end = max(h.end, o.Call, o.Return)
			case "feed":
				f := new(feed)
				err = json.Unmarshal(lines.Bytes(), f)
				h.feeds = append(h.feeds, f)
			default:
				err = fmt.Errorf("the type %q is unknown", line.Type)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
	}
	if len(h.ops) == 0 {
		return nil, fmt.Errorf("there are no operations in it")
	}
	sort.SliceStable(h.ops, func(a, b int) bool { return h.ops[a].Call < h.ops[b].Call })
	return h, lines.Err()
}

// judged is what Porcupine says of one key.
type judged struct {
	key    string
	ops    int
	result porcupine.CheckResult
	info   porcupine.LinearizationInfo
	model  porcupine.Model
}

// linearize judges each key by the model of its kind.
func (h *history) linearize(limit time.Duration) []judged {
	earliest := h.earliestCalls()
	byKey := map[string][]porcupine.Operation{}
	for _, o := range h.ops {
		ret := o.Return
		switch {
		case !o.isKnown() && o.isRead(), o.isKnown() && o.Nothing:
			continue
		case !o.isKnown():
			ret = h.end + 2
		}
		call := o.Call
		if at, is := earliest[o]; is {
			call = at
		}
		one := porcupine.Operation{ClientId: o.Client, Input: o, Call: call, Output: o, Return: ret}
		byKey[o.Key] = append(byKey[o.Key], one)
	}
	all := make([]judged, 0, len(byKey))
	end := porcupine.Operation{Input: theEnd, Call: h.end + 1, Output: theEnd, Return: h.end + 1}
	for key, ops := range byKey {
		all = append(all, judged{key: key, ops: len(ops)})
		byKey[key] = append(ops, end)
	}
	sort.Slice(all, func(a, b int) bool { return all[a].key < all[b].key })
	var wait sync.WaitGroup
	turns := make(chan struct{}, 2)
	for at := range all {
		wait.Add(1)
		go func(one *judged) {
			defer wait.Done()
			turns <- struct{}{}
			defer func() { <-turns }()
			kind, _, _ := strings.Cut(one.key, "/")
			one.model = modelOf(kind)
			ops := byKey[one.key]
			if one.result = porcupine.CheckOperationsTimeout(one.model, order(ops), limit); one.result != porcupine.Ok {
				one.result, one.info = porcupine.CheckOperationsVerbose(one.model, ops, limit)
			}
		}(&all[at])
	}
	wait.Wait()
	return all
}

// order notes what serials say of the order of a key's calls: a write comes after those with lower serials, and a read after those
// that its serial covers, and before all others. It returns the calls with reads at the time when they were made, but for those
// that show what had been replaced by then: nearly always that fits as well, and is judged sooner.
func order(ops []porcupine.Operation) []porcupine.Operation {
	var commits []*op
	for _, one := range ops {
		if o := one.Input.(*op); o.isDone() && o.commits() {
			commits = append(commits, o)
		}
	}
	sort.Slice(commits, func(a, b int) bool { return commits[a].Serial < commits[b].Serial })
	for at, o := range commits {
		o.writesBefore = at
	}
	fresh := append([]porcupine.Operation(nil), ops...)
	for at, one := range ops {
		read := one.Input.(*op)
		if !read.isDone() || !read.isRead() || read.Serial == 0 {
			continue
		}
		read.writesBefore = sort.Search(len(commits), func(at int) bool { return commits[at].Serial > read.Serial })
		later := commits[read.writesBefore:]
		for _, o := range later {
			o.readsBefore++
		}
		if len(later) == 0 || later[0].Return >= read.Call {
			fresh[at].Call = read.Call
		}
	}
	return fresh
}

// earliestCalls says since when a read of a fleet counts as begun. A process may show any state that has what the client has
// seen, whose serial it sends: so the read comes after each write up to that serial, and these began at that time at the latest.
// A push or the end of a yank that finds all as it wants it is answered from such a state, too.
func (h *history) earliestCalls() map[*op]int64 {
	earliest := map[*op]int64{}
	if !h.isFleet {
		return earliest
	}
	var commits []*op
	for _, o := range h.ops {
		if o.isDone() && o.commits() {
			commits = append(commits, o)
		}
	}
	sort.Slice(commits, func(a, b int) bool { return commits[a].Serial < commits[b].Serial })
	// The latest beginning of the writes up to each of them.
	latest := make([]int64, len(commits)+1)
	for at, o := range commits {
		latest[at+1] = max(latest[at], o.Call)
	}
	for _, o := range h.ops {
		if o.isRead() || o.isDone() && !o.commits() {
			seen := sort.Search(len(commits), func(at int) bool { return commits[at].Serial > o.Seen })
			earliest[o] = min(o.Call, latest[seen])
		}
	}
	return earliest
}

func main() {
	pictures := flag.String("pictures", "", "directory for a picture of each key that is not linearizable")
	limit := flag.Duration("limit", time.Minute, "the longest time for one key")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: porcupine [--pictures DIRECTORY] [--limit TIME] HISTORY")
		os.Exit(2)
	}
	h, err := read(flag.Arg(0))
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", flag.Arg(0), err)
		os.Exit(2)
	}
	wrong := h.report(*limit, *pictures)
	for _, what := range wrong {
		fmt.Println("wrong:", what)
	}
	if len(wrong) > 0 {
		fmt.Println("verdict: the history does not hold")
		os.Exit(1)
	}
	fmt.Println("verdict: the history holds")
}

// report prints what was judged, and returns what is wrong.
func (h *history) report(limit time.Duration, pictures string) (wrong []string) {
	clients, unknown, nothing := map[int]bool{}, 0, 0
	for _, o := range h.ops {
		clients[o.Client] = true
		if !o.isKnown() {
			unknown++
		}
		if o.Nothing {
			nothing++
		}
	}
	fmt.Printf("operations: %d by %d clients in %.1f s; %d without an answer, %d refused for the store's state\n",
		len(h.ops), len(clients), float64(h.end)/1e9, unknown, nothing)
	faults := make([]string, 0, len(h.faults))
	for what, count := range h.faults {
		faults = append(faults, fmt.Sprintf("%s: %d", what, count))
	}
	sort.Strings(faults)
	fmt.Println("faults:", strings.Join(append(faults, ""), "; "))

	type total struct{ keys, ops int }
	totals := map[string]total{}
	for _, one := range h.linearize(limit) {
		kind, _, _ := strings.Cut(one.key, "/")
		totals[kind] = total{totals[kind].keys + 1, totals[kind].ops + one.ops}
		switch one.result {
		case porcupine.Ok:
			continue
		case porcupine.Unknown:
			wrong = append(wrong, fmt.Sprintf("%s: %d operations were not judged within %s", one.key, one.ops, limit))
		default:
			wrong = append(wrong, fmt.Sprintf("%s: %d operations are not linearizable%s", one.key, one.ops, h.stuck(one)))
		}
		if pictures != "" {
			path := filepath.Join(pictures, strings.ReplaceAll(one.key, "/", "-")+".html")
			if err := porcupine.VisualizePath(one.model, one.info, path); err != nil {
				wrong = append(wrong, fmt.Sprintf("%s: no picture: %v", one.key, err))
			}
		}
	}
	for _, kind := range kinds {
		fmt.Printf("%s: %d operations on %d keys\n", kind, totals[kind].ops, totals[kind].keys)
	}
	wrong = append(wrong, h.checkSerials()...)
	lines, wrongInFeeds := h.checkFeeds()
	fmt.Printf("feed: %d lines\n", lines)
	return append(wrong, wrongInFeeds...)
}

// stuck describes the operations of a key after the longest order that Porcupine found.
func (h *history) stuck(one judged) string {
	partial := one.info.PartialLinearizationsOperations()
	if len(partial) == 0 {
		return ""
	}
	longest := []porcupine.Operation{}
	for _, order := range partial[0] {
		if len(order) > len(longest) {
			longest = order
		}
	}
	placed, state := map[*op]bool{}, one.model.Init()
	for _, done := range longest {
		placed[done.Input.(*op)] = true
		_, state = one.model.Step(state, done.Input, done.Output)
	}
	said, shown := "; after "+one.model.DescribeState(state)+" none of these fits", 0
	for _, o := range h.ops {
		if o.Key == one.key && o.isKnown() && !placed[o] && shown < 3 {
			said += "\n  " + o.String()
			shown++
		}
	}
	return said
}
