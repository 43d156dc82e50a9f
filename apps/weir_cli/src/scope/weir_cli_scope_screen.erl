%% @doc The screen of `weir scope' as a value. Keys change it, and it is drawn as lines of a given size.
-module(weir_cli_scope_screen).

-export([new/1]).
-export([key/2]).
-export([resize/3]).
-export([data/3]).
-export([failed/2]).
-export([wanted/1]).
-export([draw/1]).
-export([plain/3]).

-export_type([screen/0, key/0, data/0]).

-record(screen, {
    node :: node(),
    columns = 80 :: pos_integer(),
    rows = 24 :: pos_integer(),
    page = overview :: weir_scope_page:name(),
    %% The sort column of each page where it is not the default.
    sorts = #{} :: #{weir_scope_page:name() => weir_scope_page:sort()},
    reversed = false :: boolean(),
    scrolled = 0 :: non_neg_integer(),
    filter = "" :: string(),
    typing = false :: boolean(),
    paused = false :: boolean(),
    help = false :: boolean(),
    past = [] :: [float()],
    data = none :: none | {weir_scope_page:name(), data()},
    failure = none :: none | unicode:chardata()
}).

-opaque screen() :: #screen{}.

-type data() :: weir_scope_page:data() | {recorded, At :: integer(), [weir_scope_page:block()]}.
%% The data of a live page, or a recorded page with its time in milliseconds since 1970.

-type key() :: char() | up | down | left | right | escape | enter | backspace | tab.

-define(PAST, 60).

-spec new(node()) -> screen().
new(Node) -> #screen{node = Node}.

-spec resize(Rows :: pos_integer(), Columns :: pos_integer(), screen()) -> screen().
resize(Rows, Columns, Screen) -> Screen#screen{rows = max(5, Rows), columns = max(20, Columns)}.

%% @doc Returns the page and the sort column to ask for next, or `nothing' while the screen is paused.
-spec wanted(screen()) -> {weir_scope_page:name(), weir_scope_page:sort()} | nothing.
wanted(#screen{paused = true}) -> nothing;
wanted(#screen{page = Page} = Screen) -> {Page, sort(Screen)}.

sort(#screen{page = Page, sorts = Sorts}) -> maps:get(Page, Sorts, hd(weir_scope_page:sorts(Page))).

%% @doc Takes the data of a page. They are ignored while the screen is paused.
-spec data(weir_scope_page:name(), data(), screen()) -> screen().
data(_Page, _Data, #screen{paused = true} = Screen) ->
    Screen;
data(Page, {recorded, _, _} = Data, Screen) ->
    Screen#screen{data = {Page, Data}, failure = none};
data(Page, #{sample := #{schedulers := Schedulers}} = Data, #screen{past = Past} = Screen) ->
    Normal = [Busy || #{kind := normal, utilisation := Busy} <- Schedulers],
    Mean = lists:sum(Normal) / max(1, length(Normal)),
    Screen#screen{data = {Page, Data}, failure = none, past = lists:sublist([Mean | Past], ?PAST)}.

%% @doc Takes the reason why there are no data. The screen shows it beside the data before.
-spec failed(unicode:chardata(), screen()) -> screen().
failed(Reason, Screen) -> Screen#screen{failure = Reason}.

-spec key(key(), screen()) -> screen() | quit.
key(3, _Screen) ->
    quit;
key(enter, #screen{typing = true} = Screen) ->
    Screen#screen{typing = false};
key(escape, #screen{typing = true} = Screen) ->
    Screen#screen{typing = false, filter = ""};
key(backspace, #screen{typing = true, filter = Filter} = Screen) ->
    Screen#screen{filter = lists:sublist(Filter, max(0, length(Filter) - 1))};
key(Key, #screen{typing = true, filter = Filter} = Screen) when is_integer(Key), Key >= $\s ->
    Screen#screen{filter = Filter ++ [Key], scrolled = 0};
key(_Key, #screen{typing = true} = Screen) ->
    Screen;
key(_Key, #screen{help = true} = Screen) ->
    Screen#screen{help = false};
key($q, _Screen) ->
    quit;
key(Key, Screen) when Key =:= $?; Key =:= $h -> Screen#screen{help = true};
key($/, Screen) ->
    Screen#screen{typing = true, filter = ""};
key(escape, Screen) ->
    Screen#screen{filter = ""};
key(Key, #screen{paused = Paused} = Screen) when Key =:= $p; Key =:= $\s -> Screen#screen{paused = not Paused};
key($r, #screen{reversed = Reversed} = Screen) ->
    Screen#screen{reversed = not Reversed};
key($s, #screen{page = Page, sorts = Sorts} = Screen) ->
    Screen#screen{sorts = Sorts#{Page => following(sort(Screen), weir_scope_page:sorts(Page))}, scrolled = 0};
key(Key, #screen{scrolled = Scrolled} = Screen) when Key =:= down; Key =:= $j -> Screen#screen{scrolled = Scrolled + 1};
key(Key, #screen{scrolled = Scrolled} = Screen) when Key =:= up; Key =:= $k ->
    Screen#screen{scrolled = max(0, Scrolled - 1)};
key(Key, #screen{page = Page} = Screen) when Key =:= tab; Key =:= right ->
    turned(following(Page, weir_scope_page:names()), Screen);
key(left, #screen{page = Page} = Screen) ->
    turned(following(Page, lists:reverse(weir_scope_page:names())), Screen);
key(Key, Screen) ->
    case [Page || {Same, Page} <- keyed(), Same =:= Key] of
        [Page] -> turned(Page, Screen);
        [] -> Screen
    end.

%% The tenth page has the key 0, the last two have letters.
keyed() -> lists:zip("1234567890lc", weir_scope_page:names()).

%% Another page ends the pause, because there are no data for it yet.
turned(Page, Screen) -> Screen#screen{page = Page, scrolled = 0, paused = false}.

following(Element, List) ->
    case lists:dropwhile(fun(Other) -> Other =/= Element end, List) of
        [Element, Next | _] -> Next;
        _ -> hd(List)
    end.

%% @doc Returns the whole screen in colours, from the top left corner.
-spec draw(screen()) -> unicode:chardata().
draw(#screen{rows = Rows, columns = Columns} = Screen) ->
    Lines = [tabs(Screen)] ++ body(Screen, Rows - 2) ++ [footer(Screen)],
    ["\e[H", lists:join("\r\n", [[line(Line, Columns), "\e[0m\e[K"] || Line <- Lines])].

%% A line is a list of pieces with a style each. It is cut at the right edge.
line([], _Left) ->
    [];
line(_Pieces, 0) ->
    [];
line([{Style, Text} | Pieces], Left) ->
    Cut = string:slice(unicode:characters_to_list(Text), 0, Left),
    [style(Style), Cut, "\e[0m" | line(Pieces, Left - string:length(Cut))].

style(plain) -> "";
style(title) -> "\e[1m";
style(chosen) -> "\e[7m";
style(dim) -> "\e[2m";
style(warning) -> "\e[1;31m".

tabs(#screen{page = Page, columns = Columns}) ->
    %% Names are shortened until all fit into the width.
    [Texts | _] = [
        Texts
     || Room <- lists:seq(20, 1, -1),
        Texts <- [named(Page, Room)],
        Room =:= 1 orelse lists:sum([length(Text) + 1 || {_, Text} <- Texts]) =< Columns
    ],
    lists:append([
        [
            {
                case Name of
                    Page -> chosen;
                    _ -> plain
                end,
                Text
            },
            {plain, " "}
        ]
     || {Name, Text} <- Texts
    ]).

named(Page, Room) ->
    [
        {Name, [Key, $\s | case Name of Page -> atom_to_list(Name); _ -> lists:sublist(atom_to_list(Name), Room) end]}
     || {Key, Name} <- keyed()
    ].

footer(#screen{typing = true, filter = Filter}) ->
    [{title, ["filter: ", Filter, "_"]}, {dim, "  (Enter: keep, Esc: clear)"}];
footer(#screen{failure = Failure}) when Failure =/= none ->
    [{warning, Failure}];
footer(#screen{node = Node, paused = Paused, filter = Filter} = Screen) ->
    [
        {title, atom_to_list(Node)},
        {warning, case Paused of true -> "  paused"; false -> "" end},
        {plain, ["  sorted by ", atom_to_list(sort(Screen))]},
        {plain, case Filter of "" -> ""; _ -> ["  filter: ", Filter] end},
        {dim, "  Tab s r / p ? q"}
    ].

body(#screen{help = true}, Height) ->
    padded([[{plain, Text}] || Text <- help()], Height);
body(#screen{page = Page, data = {Page, Data}, past = Past} = Screen, Height) ->
    Blocks = page(Page, Data, lists:reverse(Past)),
    padded(blocks(Blocks, Screen, Height), Height);
body(_Screen, Height) ->
    padded([[], [{dim, "asking ..."}]], Height).

page(_Page, {recorded, At, Blocks}, _Past) ->
    [{text, [["recorded at ", calendar:system_time_to_rfc3339(At, [{unit, millisecond}, {offset, "Z"}])]]} | Blocks];
page(Page, Data, Past) ->
    weir_scope_page:page(Page, Data, Past).

help() ->
    [
        "",
        "Tab, arrows           next or previous page; 1 to 0, l, c: that page",
        "s                     sort by the next column",
        "r                     reverse the order",
        "/                     show only lines with a text; Esc shows all",
        "up, down, j, k        scroll",
        "p, space              pause, continue",
        "?                     this text",
        "q                     quit",
        "",
        "Figures are of the last second. Expensive pages are only measured while they",
        "are shown: processes, sockets and weir (relays), which read each one twice;",
        "threads, which turns microstate accounting on; locks, if the VM counts them;",
        "and clocks, which reads each clock 20,000 times."
    ].

padded(Lines, Height) ->
    Shown = lists:sublist(Lines, Height),
    Shown ++ lists:duplicate(Height - length(Shown), []).

blocks(Blocks, #screen{columns = Columns} = Screen, Height) ->
    lists:foldl(
        fun
            ({text, Texts}, Lines) ->
                Lines ++ [[{plain, Text}] || Text <- Texts];
            ({table, Titles, Rows}, Lines) ->
                Lines ++
                    table(Titles, ordered(Titles, Rows, Screen), Columns, max(1, Height - length(Lines) - 1), Screen)
        end,
        [],
        Blocks
    ).

ordered(Titles, Rows, #screen{reversed = Reversed, filter = Filter} = Screen) ->
    Sort = sort(Screen),
    Kept = [Row || Row <- Rows, Filter =:= "" orelse mentions(Filter, Row)],
    case [Index || {Index, {Name, _, _}} <- lists:zip(lists:seq(1, length(Titles)), Titles), Name =:= Sort] of
        [Index | _] ->
            Ascending = lists:sort(
                fun(A, B) -> element(1, lists:nth(Index, A)) =< element(1, lists:nth(Index, B)) end, Kept
            ),
            case (Sort =:= number orelse Sort =:= name) =/= Reversed of
                true -> Ascending;
                false -> lists:reverse(Ascending)
            end;
        [] ->
            Kept
    end.

mentions(Filter, Row) ->
    string:find(
        string:lowercase(unicode:characters_to_list([[Text, $\s] || {_, Text} <- Row])), string:lowercase(Filter)
    ) =/= nomatch.

table(Titles, Rows, _Columns, Height, #screen{scrolled = Scrolled} = Screen) ->
    Visible = lists:sublist(lists:nthtail(min(Scrolled, max(0, length(Rows) - Height)), Rows), Height),
    Texts = [[unicode:characters_to_list(Text) || {_, Text} <- Row] || Row <- Visible],
    Widths = widths([[Title || {_, Title, _} <- Titles] | Texts]),
    Sort = sort(Screen),
    Head = lists:append([
        [
            {
                case Name of
                    Sort -> chosen;
                    _ -> title
                end,
                padded_to(Title, Width, Side)
            },
            {plain, " "}
        ]
     || {{Name, Title, Side}, Width} <- lists:zip(Titles, Widths)
    ]),
    [
        Head
        | [
            [
                {plain, [
                    [padded_to(Text, Width, Side), $\s]
                 || {Text, {{_, _, Side}, Width}} <- lists:zip(Row, lists:zip(Titles, Widths))
                ]}
            ]
         || Row <- Texts
        ]
    ].

widths([Row]) -> [string:length(Text) || Text <- Row];
widths([Row | Rows]) -> lists:zipwith(fun(Text, Width) -> max(string:length(Text), Width) end, Row, widths(Rows)).

padded_to(Text, Width, left) -> string:pad(Text, Width);
padded_to(Text, Width, right) -> string:pad(Text, Width, leading).

%% @doc Returns a page as plain lines, up to 1,000 lines of 1,000 characters.
-spec plain(weir_scope_page:name(), data(), node()) -> unicode:chardata().
plain(Page, Data, Node) ->
    Screen = #screen{node = Node, page = Page, rows = 1000, columns = 1000},
    [[string:trim([Text || {_, Text} <- Line], trailing), $\n] || Line <- blocks(page(Page, Data, []), Screen, 1000)].
