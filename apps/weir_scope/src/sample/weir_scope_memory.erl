%% @doc The memory of a node: as the operating system sees it, the allocators' carriers, the blocks in them, and the
%% kinds of `erlang:memory/0'.
%%
%% Each contains the next: the resident set of the process (`rss'), the carriers that the allocators have taken from
%% the system, and the used blocks in carriers. RSS far above carriers is memory of native code or of the C library.
%% Carriers far above blocks are memory that was used once and is kept.
-module(weir_scope_memory).

-export([open/1]).
-export([read/2]).
-export([allocators/1]).
-export([mappings/1]).

-export_type([sources/0, memory/0, allocator/0, mappings/0]).

-opaque sources() :: weir_scope_files:source().

-type memory() :: #{
    kinds := #{atom() => non_neg_integer()},
    allocators := [allocator()],
    carriers := non_neg_integer(),
    blocks := non_neg_integer(),
    rss => non_neg_integer(),
    swap => non_neg_integer(),
    super_carrier => #{total := non_neg_integer(), used := non_neg_integer()}
}.
%% Bytes. `kinds': as in `erlang:memory/0'. `super_carrier': only with `+MMscs'.

-type allocator() :: #{
    name := atom(),
    carriers := non_neg_integer(),
    blocks := non_neg_integer(),
    single_carriers := non_neg_integer(),
    pooled := non_neg_integer(),
    instances := pos_integer()
}.
%% Bytes of the carriers of all instances, and of the used blocks in them. `single_carriers': carriers with one large
%% block each. `pooled': carriers that an instance has given up, which any instance may take.

-type mappings() :: #{mapped := non_neg_integer(), unmapped := non_neg_integer(), cached := non_neg_integer()}.
%% Counts since the node started: carriers made by mmap(2), carriers returned by munmap(2), carriers taken from the
%% cache.

-spec open(weir_scope_facts:ask()) -> sources().
open(Ask) ->
    weir_scope_files:open(Ask, "/proc/self/status").

-spec read(weir_scope_facts:ask(), sources()) -> memory().
read(Ask, Source) ->
    Status = weir_scope_files:read(Ask, Source),
    Allocators = allocators(Ask),
    Known = #{
        kinds => maps:from_list(Ask(erlang, memory, [])),
        allocators => Allocators,
        carriers => lists:sum([Carriers || #{carriers := Carriers} <- Allocators]),
        blocks => lists:sum([Blocks || #{blocks := Blocks} <- Allocators]),
        rss => kilobytes(Status, <<"\nVmRSS:">>),
        swap => kilobytes(Status, <<"\nVmSwap:">>),
        super_carrier => super_carrier(Ask(erlang, system_info, [{allocator, erts_mmap}]))
    },
    maps:filter(fun(_, Value) -> Value =/= unknown end, Known).

kilobytes(unknown, _Name) ->
    unknown;
kilobytes(Status, Name) ->
    case binary:split(Status, Name) of
        [_, Rest] -> weir_scope_files:number(hd(binary:split(Rest, <<"\n">>))) * 1024;
        _ -> unknown
    end.

%% @doc Returns the allocators, each with the sums of its instances.
-spec allocators(weir_scope_facts:ask()) -> [allocator()].
allocators(Ask) ->
    Names = Ask(erlang, system_info, [alloc_util_allocators]),
    [
        allocator(Name, Instances)
     || {Name, Instances} <- Ask(erlang, system_info, [{allocator_sizes, Names}]), is_list(Instances), Instances =/= []
    ].

allocator(Name, Instances) ->
    Kinds = [{Kind, Sizes} || {instance, _, All} <- Instances, {Kind, Sizes} <- All, is_list(Sizes)],
    #{
        name => Name,
        instances => length(Instances),
        carriers => lists:sum([current(carriers_size, Sizes) || {_, Sizes} <- Kinds]),
        blocks => lists:sum([blocks(Sizes) || {_, Sizes} <- Kinds]),
        single_carriers => lists:sum([current(carriers_size, Sizes) || {sbcs, Sizes} <- Kinds]),
        pooled => lists:sum([current(carriers_size, Sizes) || {mbcs_pool, Sizes} <- Kinds])
    }.

%% `{Name, Current}' or `{Name, Current, LastMaximum, Maximum}'.
current(Key, Sizes) ->
    case lists:keyfind(Key, 1, Sizes) of
        false -> 0;
        Found -> element(2, Found)
    end.

%% A carrier may hold blocks of other allocators, which had it before.
blocks(Sizes) ->
    {blocks, Owners} = lists:keyfind(blocks, 1, Sizes ++ [{blocks, []}]),
    lists:sum([current(size, Of) || {_, Of} <- Owners]).

super_carrier(Areas) ->
    Default = proplists:get_value(default_mmap, Areas, []),
    case proplists:get_value(sizes, proplists:get_value(supercarrier, Default, []), none) of
        none -> unknown;
        Sizes -> #{total => proplists:get_value(total, Sizes), used => proplists:get_value(used, Sizes)}
    end.

%% @doc Returns how often memory was mapped and unmapped. It is not part of a sample, because every scheduler has to
%% answer.
-spec mappings(weir_scope_facts:ask()) -> mappings().
mappings(Ask) ->
    Instances =
        case Ask(erlang, system_info, [{allocator, mseg_alloc}]) of
            All when is_list(All) -> All;
            _ -> []
        end,
    Kinds = [Kind || {instance, _, Properties} <- Instances, {memkind, Kind} <- Properties],
    Calls = [Call || Kind <- Kinds, {calls, Calls} <- Kind, Call <- Calls],
    Sum = fun(Names) ->
        lists:sum([Giga * 1_000_000_000 + Ones || {Name, Giga, Ones} <- Calls, lists:member(Name, Names)])
    end,
    #{
        mapped => Sum([mseg_create, mseg_create_resize]),
        unmapped => Sum([mseg_destroy]),
        cached => lists:sum([
            element(2, Status)
         || Kind <- Kinds, {status, All} <- Kind, Status <- All, element(1, Status) =:= cache_hits
        ])
    }.
